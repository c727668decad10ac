// SPDX-License-Identifier: Apache-2.0
//
// Which nodes may join a RendezvousCore's job.
#include <algorithm>

#include "rendezvous/core/contradiction.h"
#include "rendezvous/core/observe.h"
#include "rendezvous/core/rendezvous_core.h"

namespace regroup::rendezvous::core {

namespace {

// A node that may be lost, or is to leave, is about to be replaced.
bool is_there(const Job& job, Instant now, const Node& node) {
    return !node.wish && !job.detector.suspects(node.slot) &&
           now - job.detector.heard_at(node.slot) < job.policy.heartbeat_timeout / 2 &&
           !job.failures.is_quarantined(node.offer.name);
}

// Mostly two users, or two terminals, with the same usual id.
const Node* only_node_against(const Job& job, Instant now, const Offer& newcomer) {
    if (job.policy.nodes_max != 1 || newcomer.command.empty() || newcomer.slot) {
        return nullptr;
    }
    for (const auto& [id, node] : job.nodes) {
        const bool wants_standby =
            job.policy.standbys_max > 0 && node.offer.command == newcomer.command;
        if (is_there(job, now, node) && !wants_standby) {
            return &node;
        }
    }
    return nullptr;
}

// In a job of the usual name: a node of the role, if none runs the newcomer's command.
const Node* node_of_other_command(const Job& job, Instant now, const Offer& newcomer) {
    if (!newcomer.same_command_only || newcomer.command.empty() || newcomer.slot ||
        job.offers.has_command(newcomer.role, newcomer.command)) {
        return nullptr;
    }
    const auto found = std::find_if(job.nodes.begin(), job.nodes.end(), [&](const auto& entry) {
        return entry.second.offer.role == newcomer.role && is_there(job, now, entry.second);
    });
    return found == job.nodes.end() ? nullptr : &found->second;
}

}  // namespace

bool runs_other_command(const Job& job, const Offer& offer) {
    const auto found = job.round.commands.find(offer.role);
    return job.policy.standbys_max == 0 && !offer.command.empty() &&
           found != job.round.commands.end() && !found->second.contains(offer.command) &&
           !found->second.contains("");
}

std::optional<Refused> refusal(const Job& job, Instant now, const NodeJoined& event) {
    const Offer& offer = event.offer;
    const auto refuse = [&](Refusal::Kind kind, std::string here, std::string there) {
        Refused refused;
        refused.reason.kind = kind;
        refused.reason.node = offer.name;
        refused.reason.here = std::move(here);
        refused.reason.there = std::move(there);
        return refused;
    };
    const auto own = job.nodes.find(event.node);
    const bool is_known = own != job.nodes.end();
    const std::size_t itself = is_known && own->second.offer.role == offer.role ? 1 : 0;
    if (const Node* other = is_known ? nullptr : only_node_against(job, now, offer)) {
        Refused refused = refuse(Refusal::Kind::other_job, "", "");
        refused.reason.other = other->offer.name;
        refused.reason.same_command = other->offer.command == offer.command;
        return refused;
    }
    if (const Node* other = is_known ? nullptr : node_of_other_command(job, now, offer)) {
        Refused refused = refuse(Refusal::Kind::other_command, "", "");
        refused.reason.other = other->offer.name;
        return refused;
    }
    JobPolicy policy = event.policy;
    if (!job.nodes.empty() && job.offers.with_role(offer.role) <= itself) {
        policy.program = job.policy.program;  // Another role may run another program.
    }
    if (const auto found = contradiction(job.policy, policy)) {
        Refused refused = refuse(Refusal::Kind::contradicts, found->here, found->there);
        refused.reason.field = found->field;
        // Nodes that come back may hold the job's state, so the message must offer more than a
        // flag.
        refused.reason.may_begin_another = offer.ends_with_daemon;
        for (const auto& [id, node] : job.nodes) {
            if (id != event.node) {
                refused.reason.other = name_of(job, id);
                break;
            }
        }
        return refused;
    }
    if (offer.workers == 0 || offer.workers > RendezvousCore::kWorkersLimit) {
        return refuse(Refusal::Kind::workers, std::to_string(offer.workers),
                      std::to_string(RendezvousCore::kWorkersLimit));
    }
    if (event.report.round >
        std::max({RendezvousCore::kRoundClaimMax, job.round.id, job.round_floor})) {
        return refuse(Refusal::Kind::round, std::to_string(number(event.report.round)),
                      std::to_string(number(RendezvousCore::kRoundClaimMax)));
    }
    if (offer.slot && *offer.slot >= job.policy.nodes_max) {
        return refuse(Refusal::Kind::slot, std::to_string(*offer.slot), nodes_range(job.policy));
    }
    if (!offer.slot) {
        return std::nullopt;
    }
    for (const NodeId& id : job.offers.claimants(*offer.slot)) {
        // A new claimant of a slot may replace a node that is probably lost. Two live claimants are
        // a mistake in a command line; those of one name may be a pod that ends and the one that
        // replaces it, which tries again.
        const Node& other = job.nodes.at(id);
        if (id != event.node && !job.detector.suspects(other.slot) &&
            now - job.detector.heard_at(other.slot) < job.policy.heartbeat_timeout / 2) {
            Refused refused = refuse(Refusal::Kind::slot_taken, std::to_string(*offer.slot), "");
            refused.reason.other = other.offer.name;
            if (other.offer.name == offer.name) {
                refused.code = Errc::overloaded;
            }
            return refused;
        }
    }
    return std::nullopt;
}

}  // namespace regroup::rendezvous::core
