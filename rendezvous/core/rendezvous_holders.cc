// SPDX-License-Identifier: Apache-2.0
//
// A step is lost with the last process that has its state: how a RendezvousCore sees to it that no
// round goes on without who has come furthest.
#include <algorithm>

#include "rendezvous/core/node_state.h"
#include "rendezvous/core/rendezvous_core.h"

namespace regroup::rendezvous {

std::uint64_t RendezvousCore::held_by_ready() const {
    std::uint64_t step = 0;
    for (const NodeId& id : ready_) {
        step = std::max(step, nodes_.at(id).report.held_step);
    }
    return step;
}

// Who has it comes back, parks its workers, or is lost: all of that takes a limited time.
bool RendezvousCore::awaits_holder(Instant now) {
    std::uint64_t held = held_by_ready();
    const auto has_more = [&](const Node& node) { return node.report.held_step > held; };
    const bool aside = std::any_of(nodes_.begin(), nodes_.end(), [&](const auto& entry) {
        return strikes_.is_aside(entry.second.offer.name) && has_more(entry.second);
    });
    if (aside) {
        pardon(now);
        held = held_by_ready();
    }
    const Instant limit =
        after(after(hold_since_.value_or(now), policy_.shutdown_timeout), kStopMargin);
    Instant until = Instant::min();
    for (const auto& [id, node] : nodes_) {
        if (has_more(node) && !is_leaving(node) && !strikes_.is_aside(node.offer.name)) {
            // Its workers may be at work of their own.
            const Instant parked = std::max(limit, node.at_work_until + kStopMargin);
            until = std::max(
                until, detector_.suspects(id) ? std::min(detector_.lost_at(id), parked) : parked);
        }
    }
    const bool awaits = until > now;
    hold_until_ = awaits ? until : Instant::max();
    hold_since_ = awaits ? hold_since_.value_or(now) : hold_since_;
    return awaits;
}

// Who had the state of a later step was lost as the round was formed, and a node that waits still
// has some. The round has said where it began just now; of what was long ago, all have gone on
// since.
bool RendezvousCore::begins_behind(Instant now, const Resumed& resumed) {
    const auto held_by = [&](const NodeId& id) { return nodes_.at(id).report.held_step; };
    const auto furthest =
        std::max_element(ready_.begin(), ready_.end(),
                         [&](const NodeId& a, const NodeId& b) { return held_by(a) < held_by(b); });
    if (phase_ != Phase::running || resumed.step == 0 || resumed.ago > policy_.heartbeat_timeout ||
        furthest == ready_.end() || held_by(*furthest) <= resumed.step) {
        return false;
    }
    begin_stopping(now, "node " + name_of(*furthest) + " has come to step " +
                            std::to_string(held_by(*furthest)) + ", and the round began at step " +
                            std::to_string(resumed.step - 1) + " without it");
    return true;
}

}  // namespace regroup::rendezvous
