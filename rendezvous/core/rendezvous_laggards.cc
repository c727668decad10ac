// SPDX-License-Identifier: Apache-2.0
//
// Nodes that are to leave, and have not come as far as others: how a RendezvousCore gives them one
// more round, in which all come to one step.
#include <algorithm>
#include <utility>

#include "rendezvous/core/node_state.h"
#include "rendezvous/core/rendezvous_core.h"

namespace regroup::rendezvous {

namespace {

// Each takes another failure, which is charged to nobody while all are about to leave.
constexpr int kExtraRoundsMost = 3;

}  // namespace

bool RendezvousCore::is_behind(const Node& node) const {
    return std::any_of(nodes_.begin(), nodes_.end(), [&](const auto& entry) {
        return entry.second.report.held_step > node.report.held_step;
    });
}

bool RendezvousCore::lags(const Node& node) const {
    const NodeReport& report = node.report;
    // Where one has failed the node's workers may all be gone, and new ones have nothing to save.
    const bool has_some = report.held_step > 0 || !report.failure;
    return may_keep_state(report) && has_no_workers(report) &&
           (report.uneven || (has_some && is_behind(node)));
}

// Whoever has reached the boundary has come as far as all others: nobody lags then.
bool RendezvousCore::detain_laggards(Instant now) {
    std::size_t there = 0;
    std::size_t stay = 0;
    bool lag = false;
    bool wished = evacuation_.empty();  // By one that takes part, so that it is decided again.
    std::uint64_t leaves = 0;  // The furthest of those that leave has the state of this step,
    std::uint64_t stays = 0;   // and of those that stay.
    for (const auto& [id, node] : nodes_) {
        const std::uint64_t held = node.report.held_step;
        const bool may_go_on = has_no_workers(node.report) && !detector_.suspects(id) &&
                               !strikes_.is_aside(node.offer.name);
        there += may_go_on ? 1U : 0U;
        if (members_.contains(id) && is_leaving(node)) {
            lag = lag || lags(node);
            wished = wished || wants_to_leave(node);
            leaves = std::max(leaves, has_no_workers(node.report) ? held : 0);
        } else if (may_go_on) {
            ++stay;
            stays = std::max(stays, held);
        }
    }
    lag = lag || (stay > 0 && leaves > stays && policy_.nodes_max > 1);
    const bool hopeless = failure_ && reaction_to(*failure_) == Reaction::fail;
    if (!lag || !wished || there < policy_.nodes_min || hopeless) {
        return false;
    }
    // That all leave is decided again once they have come to one step.
    postponed_ = std::exchange(evacuation_, {});
    extra_rounds_ += postponed_.empty() ? 0 : 1;
    for (auto& [id, node] : nodes_) {
        if (wants_to_leave(node) && members_.contains(id)) {
            node.detained = true;
            detained_.insert(id);
        } else if (!postponed_.empty() && !members_.contains(id)) {
            node.drain = "was to leave with all others";  // It has been told, and may be about to.
        }
        update_ready(now, id);
    }
    return !postponed_.empty();
}

// The round in which all were to come to one step has broken, before it did so or in the middle of
// another commit.
void RendezvousCore::decide_again() {
    if (!postponed_.empty() && evacuation_.empty() && extra_rounds_ < kExtraRoundsMost) {
        evacuation_ = std::exchange(postponed_, {});
        for (const NodeId& id : std::exchange(detained_, {})) {
            nodes_.at(id).detained = false;
        }
    }
}

bool RendezvousCore::leave_after_all(Instant now) {
    if (postponed_.empty()) {
        return false;
    }
    evacuation_ = std::exchange(postponed_, {});
    close(now, drained_verdict());
    return true;
}

void RendezvousCore::release_detained(Instant now) {
    postponed_.clear();
    extra_rounds_ = 0;
    for (const NodeId& id : std::exchange(detained_, {})) {
        Node& node = nodes_.at(id);
        node.detained = false;
        update_ready(now, id);
        begin_leaving(now, id, node);
        tell_to_leave(id, node);
    }
}

}  // namespace regroup::rendezvous
