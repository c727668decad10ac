// SPDX-License-Identifier: Apache-2.0
//
// Which nodes may join a RendezvousCore's job.
#include <algorithm>

#include "rendezvous/core/contradiction.h"
#include "rendezvous/core/rendezvous_core.h"

namespace regroup::rendezvous {

// A node that may be lost, or is to leave, is about to be replaced.
bool RendezvousCore::is_there(Instant now, const NodeId& id, const Node& node) const {
    return !node.wish && !detector_.suspects(id) &&
           now - detector_.heard_at(id) < policy_.heartbeat_timeout / 2 && !is_quarantined(id);
}

// Mostly two users, or two terminals, with the same usual id.
const RendezvousCore::Node* RendezvousCore::only_node_against(Instant now,
                                                              const Offer& newcomer) const {
    if (policy_.nodes_max != 1 || newcomer.command.empty() || newcomer.slot) {
        return nullptr;
    }
    for (const auto& [id, node] : nodes_) {
        const bool wants_standby =
            policy_.standbys_max > 0 && node.offer.command == newcomer.command;
        if (is_there(now, id, node) && !wants_standby) {
            return &node;
        }
    }
    return nullptr;
}

const RendezvousCore::Node* RendezvousCore::node_of_other_command(Instant now,
                                                                  const Offer& newcomer) const {
    if (!newcomer.same_command_only || newcomer.command.empty() || newcomer.slot ||
        offers_.has_command(newcomer.role, newcomer.command)) {
        return nullptr;
    }
    const auto found = std::find_if(nodes_.begin(), nodes_.end(), [&](const auto& entry) {
        return entry.second.offer.role == newcomer.role && is_there(now, entry.first, entry.second);
    });
    return found == nodes_.end() ? nullptr : &found->second;
}

bool RendezvousCore::runs_other_command(const Offer& offer) const {
    const auto found = round_.commands.find(offer.role);
    return policy_.standbys_max == 0 && !offer.command.empty() && found != round_.commands.end() &&
           !found->second.contains(offer.command) && !found->second.contains("");
}

std::optional<Refused> RendezvousCore::refusal(Instant now, const NodeJoined& event) const {
    const Offer& offer = event.offer;
    const auto refuse = [&](Refusal::Kind kind, std::string here, std::string there) {
        Refused refused;
        refused.reason.kind = kind;
        refused.reason.node = offer.name;
        refused.reason.here = std::move(here);
        refused.reason.there = std::move(there);
        return refused;
    };
    const auto own = nodes_.find(event.node);
    const bool is_known = own != nodes_.end();
    const std::size_t itself = is_known && own->second.offer.role == offer.role ? 1 : 0;
    if (const Node* other = is_known ? nullptr : only_node_against(now, offer)) {
        Refused refused = refuse(Refusal::Kind::other_job, "", "");
        refused.reason.other = other->offer.name;
        refused.reason.same_command = other->offer.command == offer.command;
        return refused;
    }
    if (const Node* other = is_known ? nullptr : node_of_other_command(now, offer)) {
        Refused refused = refuse(Refusal::Kind::other_command, "", "");
        refused.reason.other = other->offer.name;
        return refused;
    }
    JobPolicy policy = event.policy;
    if (!nodes_.empty() && offers_.with_role(offer.role) <= itself) {
        policy.program = policy_.program;  // Another role may run another program.
    }
    if (const auto found = contradiction(policy_, policy)) {
        Refused refused = refuse(Refusal::Kind::contradicts, found->here, found->there);
        refused.reason.field = found->field;
        // Nodes that come back may hold the job's state, so the message must offer more than a
        // flag.
        refused.reason.may_begin_another = offer.ends_with_daemon;
        for (const auto& [id, node] : nodes_) {
            if (id != event.node) {
                refused.reason.other = name_of(id);
                break;
            }
        }
        return refused;
    }
    if (offer.workers == 0 || offer.workers > kWorkersLimit) {
        return refuse(Refusal::Kind::workers, std::to_string(offer.workers),
                      std::to_string(kWorkersLimit));
    }
    if (event.report.round > std::max({kRoundClaimMax, round_.id, round_floor_})) {
        return refuse(Refusal::Kind::round, std::to_string(number(event.report.round)),
                      std::to_string(number(kRoundClaimMax)));
    }
    if (offer.slot && *offer.slot >= policy_.nodes_max) {
        return refuse(Refusal::Kind::slot, std::to_string(*offer.slot), nodes_range(policy_));
    }
    if (!is_known && nodes_.size() >= kNodesLimit) {
        Refused refused = refuse(Refusal::Kind::too_many, std::to_string(nodes_.size()), "");
        refused.code = Errc::overloaded;
        return refused;
    }
    if (!offer.slot) {
        return std::nullopt;
    }
    for (const NodeId& id : offers_.claimants(*offer.slot)) {
        // A new claimant of a slot may replace a node that is probably lost. Two live claimants are
        // a mistake in a command line; those of one name may be a pod that ends and the one that
        // replaces it, which tries again.
        if (id != event.node && !detector_.suspects(id) &&
            now - detector_.heard_at(id) < policy_.heartbeat_timeout / 2) {
            Refused refused = refuse(Refusal::Kind::slot_taken, std::to_string(*offer.slot), "");
            refused.reason.other = name_of(id);
            if (nodes_.at(id).offer.name == offer.name) {
                refused.code = Errc::overloaded;
            }
            return refused;
        }
    }
    return std::nullopt;
}

}  // namespace regroup::rendezvous
