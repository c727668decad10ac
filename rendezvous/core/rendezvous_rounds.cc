// SPDX-License-Identifier: Apache-2.0
//
// How a RendezvousCore goes from one round to the next.
#include <algorithm>
#include <utility>

#include "rendezvous/core/node_state.h"
#include "rendezvous/core/rendezvous_core.h"
#include "rendezvous/core/wording.h"

namespace regroup::rendezvous {

namespace {

// Beyond the shutdown timeout a member gets this long to confirm that its workers are gone.
constexpr Duration kStopMargin = std::chrono::seconds(15);

}  // namespace

void RendezvousCore::begin_stopping(Instant now, const std::string& reason) {
    ENSURE(phase_ == Phase::running || phase_ == Phase::preparing);
    cause_ = reason;
    stop_awaited(now);
}

void RendezvousCore::stop_awaited(Instant now) {
    phase_ = Phase::stopping;
    deadline_ = after(after(now, policy_.shutdown_timeout), kStopMargin);
    // The finished are not awaited; of the others, who has stopped already is done.
    const std::set<NodeId> awaited = awaited_;
    for (const NodeId& id : awaited) {
        const Node& node = nodes_.at(id);
        if (node.report.round >= round_ && has_no_workers(node.report)) {
            count_out(id, node);
        } else if (!may_be_saving(node)) {
            effects_.push_back({id, Stop{std::max(round_, node.report.round), cause_}});
        }
    }
    end_if_all_out(now);
}

void RendezvousCore::end_if_all_out(Instant now) {
    if (parked_ && evacuation_.empty()) {
        // The others go on while these save their state.
        std::erase_if(awaited_, [&](const NodeId& id) { return is_leaving(nodes_.at(id)); });
    }
    if (awaited_.empty()) {
        end_stopping(now);
    }
}

void RendezvousCore::end_stopping(Instant now) {
    ENSURE(awaited_.empty());
    deadline_ = Instant::max();
    if (all_finished_ && !members_.empty()) {
        Verdict verdict;
        verdict.outcome = Outcome::succeeded;
        verdict.exit_code = 0;
        verdict.author = "the workers";
        verdict.reason = "all workers finished";
        close(std::move(verdict));
        return;
    }
    if (!evacuation_.empty()) {
        close(drained_verdict());
        return;
    }
    // A lost node explains the failures of its peers, and costs nothing.
    if (failure_ && !lost_member_) {
        if (failures_ == policy_.restarts_max) {
            close(failure_verdict());
            return;
        }
        ++failures_;
    }
    phase_ = Phase::gathering;
    if (close_if_deserted()) {
        return;
    }
    survivors_first_ = true;
    begin_notices(now);
    for (const auto& [id, assignment] : std::exchange(members_, {})) {
        update_ready(now, id);
        const Node& node = nodes_.at(id);
        if (is_leaving(node)) {
            tell_to_leave(id, node);
        }
    }
    try_form(now);
}

void RendezvousCore::try_form(Instant now, bool door_closed) {
    if (phase_ != Phase::gathering && phase_ != Phase::last_call) {
        return;
    }
    if (ready_.size() < policy_.nodes_min) {
        phase_ = Phase::gathering;
        deadline_ = Instant::max();
        survivors_first_ = survivors_first_ && detector_.suspects_any();
        return;
    }
    const bool full = ready_.size() >= policy_.nodes_max;
    // After a round everyone who is missing is known to be lost, so there is nobody to wait for,
    // unless somebody is under suspicion and about to be either back or lost.
    const bool everyone = survivors_first_ && !detector_.suspects_any();
    if (full || everyone || door_closed || policy_.last_call == Duration::zero()) {
        form(now);
    } else if (phase_ == Phase::gathering) {
        phase_ = Phase::last_call;
        deadline_ = after(now, survivors_first_ ? std::min(policy_.regroup_call, policy_.last_call)
                                                : policy_.last_call);
    }
}

void RendezvousCore::form(Instant now) {
    std::vector<Member> candidates;
    for (const NodeId& id : ready_) {
        const Node& node = nodes_.at(id);
        candidates.push_back({id, node.offer, node.report.store_port});
    }
    const std::vector<Member> members = ranks_.arrange(std::move(candidates), policy_.nodes_max);
    std::vector<Assignment> assignments = assign_ranks(members);
    if (cause_.empty()) {
        cause_ = counted(members.size(), "node") + " joined";
    }
    phase_ = Phase::running;
    round_ = next(std::max(round_, round_floor_));
    round_began_ = now;
    deadline_ = Instant::max();
    notice_at_ = Instant::max();
    failure_.reset();
    lost_member_ = false;
    all_finished_ = true;
    someone_finished_ = false;
    parked_ = false;
    boundary_ = false;
    dismissed_.clear();
    departed_.clear();
    for (std::size_t i = 0; i < members.size(); ++i) {
        assignments[i].round = round_;
        assignments[i].restart_count = failures_;
        assignments[i].reason = cause_;
        awaited_.insert(members[i].node);
        ready_.erase(members[i].node);
        effects_.push_back({members[i].node, Assign{assignments[i]}});
        members_.emplace(members[i].node, std::move(assignments[i]));
    }
    if (!ready_.empty()) {
        begin_notices(now);
    }
}

bool RendezvousCore::may_grow() const {
    // A round in which somebody has finished is about to end: it is not worth a restart.
    return phase_ == Phase::running && members_.size() < policy_.nodes_max && !ready_.empty() &&
           !someone_finished_;
}

void RendezvousCore::close(Verdict verdict) {
    phase_ = Phase::closed;
    deadline_ = Instant::max();
    notice_at_ = Instant::max();
    verdict_ = std::move(verdict);
    verdict_->restarts = failures_;
    ready_.clear();
    members_.clear();
    awaited_.clear();
    for (const auto& [id, node] : nodes_) {
        effects_.push_back({id, Closed{*verdict_}});
    }
}

// ---- The passing of time.

Effects RendezvousCore::advance(Instant now) {
    const std::vector<std::pair<NodeId, std::string>> lost = detector_.lost(now);
    for (const auto& [id, reason] : lost) {
        ready_.erase(id);  // Those lost at the same moment must not form a round with each other.
        detector_.suspect(id, now);
    }
    for (const auto& [id, reason] : lost) {
        lose(now, id, "is lost: " + reason, Departure::lost);
    }
    if (phase_ == Phase::last_call && now >= deadline_) {
        try_form(now, true);
    } else if (phase_ == Phase::preparing && now >= deadline_) {
        begin_stopping(now, cause_ + ", and not all workers reached a step boundary in time");
    } else if (phase_ == Phase::stopping && now >= deadline_) {
        const std::set<NodeId> stuck = awaited_;
        for (const NodeId& id : stuck) {
            lose(now, id, "is lost: it did not confirm that its workers are gone", Departure::lost);
        }
    }
    if (may_grow() && now >= after(round_began_, policy_.grow_after)) {
        begin_change(now, (ready_.size() == 1 ? "node " : "nodes ") + names_of(ready_) + " joined");
    }
    if (now >= notice_at_) {
        send_notices(now);
    }
    return std::exchange(effects_, {});
}

Instant RendezvousCore::next_deadline() const {
    Instant result = std::min({detector_.next_deadline(), deadline_, notice_at_});
    if (may_grow()) {
        result = std::min(result, after(round_began_, policy_.grow_after));
    }
    return result;
}

}  // namespace regroup::rendezvous
