// SPDX-License-Identifier: Apache-2.0
//
// What a RendezvousCore does about a connection that broke between two workers. Mostly one of them
// is dead, and its node says so, or is lost itself: that is then the cause. If both say that they
// have lost each other they live, and the round is over for that alone; if only one says so, and
// nothing has explained it within the regroup call, likewise.
#include <algorithm>
#include <set>
#include <utility>

#include "rendezvous/core/rendezvous_core.h"

namespace regroup::rendezvous {

namespace {

std::string text_of_given_up(const std::string& name, const NodeReport& report) {
    return "node " + name + " gave the round up" +
           (report.store_spent ? ", whose store it could not serve any more" : "");
}

}  // namespace

std::optional<NodeId> RendezvousCore::node_with(std::uint32_t rank) const {
    for (const auto& [id, assignment] : members_) {
        if (rank >= assignment.first_rank &&
            rank - assignment.first_rank < nodes_.at(id).offer.workers) {
            return id;
        }
    }
    return std::nullopt;
}

std::string RendezvousCore::text_of(const BrokenLink& link, bool by_both) const {
    const auto named = [&](std::uint32_t rank) {
        const std::optional<NodeId> id = node_with(rank);
        return "rank " + std::to_string(rank) + (id ? " on " + name_of(*id) : "");
    };
    const std::string first = named(by_both ? std::min(link.rank, link.peer) : link.rank);
    const std::string second = named(by_both ? std::max(link.rank, link.peer) : link.peer);
    std::string text = "the connection between " + first + " and " + second + " broke";
    if (!by_both && !link.text.empty()) {
        text += ": rank " + std::to_string(link.peer) + " " + link.text;
    }
    return text;
}

bool RendezvousCore::is_mutual(const BrokenLink& link) const {
    const std::optional<NodeId> other = node_with(link.peer);
    if (!other) {
        return false;
    }
    const NodeReport& report = nodes_.at(*other).report;
    const std::vector<BrokenLink>& theirs = report.broken_links;
    return report.round == round_ && report.state == NodeState::running &&
           std::any_of(theirs.begin(), theirs.end(), [&](const BrokenLink& said) {
               return said.rank == link.peer && said.peer == link.rank;
           });
}

void RendezvousCore::consider_links(Instant now, const Node& node) {
    for (const BrokenLink& link : node.report.broken_links) {
        severed_at_ = severed_at_.value_or(now);
        if (is_mutual(link)) {
            stop_severed(now, text_of(link, true));
            return;
        }
    }
}

Instant RendezvousCore::severed_until() const {
    if ((phase_ != Phase::running && phase_ != Phase::preparing) || !severed_at_) {
        return Instant::max();
    }
    Instant until = after(*severed_at_, policy_.regroup_call);
    // Whoever is under suspicion is about to be lost, which explains it, or to speak.
    for (const auto& [id, assignment] : members_) {
        if (detector_.suspects(id)) {
            until = std::max(until, detector_.lost_at(id));
        }
    }
    return until;
}

void RendezvousCore::overdue_links(Instant now) {
    for (const auto& [id, assignment] : members_) {
        const NodeReport& report = nodes_.at(id).report;
        if (report.round == round_ && report.state == NodeState::running &&
            !report.broken_links.empty()) {
            stop_severed(now, text_of(report.broken_links.front(), false));
            return;
        }
    }
    severed_at_.reset();  // Who said so has come to its end otherwise.
}

// Workers park unasked when their peers are out of reach. Whose connection broke has said so, or is
// not there to say it.
void RendezvousCore::stop_given_up(Instant now, const Node& node) {
    const auto broken = [&](const NodeReport& report) {
        return report.round == round_ && !report.broken_links.empty();
    };
    if (broken(node.report)) {
        stop_severed(now, text_of(node.report.broken_links.front(), false));
        return;
    }
    for (const auto& [id, assignment] : members_) {
        const NodeReport& report = nodes_.at(id).report;
        if (broken(report)) {
            stop_severed(now, text_of(report.broken_links.front(), false));
            return;
        }
    }
    given_up_ = true;
    begin_stopping(now, text_of_given_up(node.offer.name, node.report));
}

// A worker that was killed or crashed, or has announced its failure, may be why the connection
// broke, whatever else is known of it.
bool RendezvousCore::explains_break(const WorkerFailure& failure) const {
    return (severed_ || given_up_) && outranks(failure, WorkerFailure{});
}

// One that only ended with an error may have done so because its peers had left, and more and more
// of them are gone in a round that stops. To charge that costs a job a restart that it may not
// have, and its node a strike; not to charge a true cause costs a rest, and it is charged when it
// comes again. So this takes all that was said by the time that the round is over, in which words
// overtake each other:
//  - Where two ranks have lost each other both lived: the connection broke by itself.
//  - Who has said that it lost a peer was alive then.
//  - Whose end broke a connection was at the other end of it: somebody has lost it.
//  - Where nobody has lost anybody, a failure is the only reason that workers had to park.
//  - Where there was no store, workers end with an error for want of it, and may be heard of first.
void RendezvousCore::explain_break() {
    if (excuse_for_store() || failure_ || lost_member_ || !(severed_ || given_up_)) {
        return;
    }
    std::set<std::pair<std::uint32_t, std::uint32_t>> lost;  // By whom, and whom.
    for (const auto& [id, assignment] : members_) {
        const NodeReport& report = nodes_.at(id).report;
        if (report.round == round_) {
            for (const BrokenLink& link : report.broken_links) {
                lost.emplace(link.rank, link.peer);
            }
        }
    }
    const bool by_itself = std::any_of(lost.begin(), lost.end(), [&](const auto& link) {
        return lost.contains({link.second, link.first});
    });
    if (by_itself) {
        return;
    }
    const auto may_be_why = [&](std::uint32_t rank) {
        const auto said = lost.lower_bound({rank, 0});
        const bool outlived = said != lost.end() && said->first == rank;
        return !outlived &&
               (lost.empty() || std::any_of(lost.begin(), lost.end(),
                                            [&](const auto& link) { return link.second == rank; }));
    };
    for (const auto& [id, assignment] : members_) {
        const Node& node = nodes_.at(id);
        const std::optional<WorkerFailure>& failure = node.report.failure;
        // Who leaves saves its state after the others have parked, and is not awaited.
        const bool counts = node.report.round == round_ && !(parked_ && is_leaving(node));
        if (counts && failure && may_be_why(failure->rank) &&
            (!failure_ || failure->rank < failure_->rank)) {
            failure_ = failure;
        }
    }
    if (failure_) {
        cause_ = describe(*failure_);
    }
}

bool RendezvousCore::excuse_for_store() {
    const auto spent = std::find_if(members_.begin(), members_.end(), [&](const auto& member) {
        const NodeReport& report = nodes_.at(member.first).report;
        return report.round == round_ && report.store_spent;
    });
    if (spent == members_.end()) {
        return false;
    }
    const bool is_plain =
        failure_ && failure_->kind == FailureKind::failure && !outranks(*failure_, WorkerFailure{});
    if (is_plain && !lost_member_) {
        const Node& node = nodes_.at(spent->first);
        failure_.reset();
        given_up_ = true;
        cause_ = text_of_given_up(node.offer.name, node.report);
    }
    return true;
}

void RendezvousCore::stop_severed(Instant now, const std::string& cause) {
    severed_ = true;
    begin_stopping(now, cause, false, severed_at_);
}

}  // namespace regroup::rendezvous
