// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/core/rendezvous_core.h"

#include <algorithm>
#include <utility>

#include "rendezvous/core/wording.h"

namespace regroup::rendezvous {

namespace {

// How long a node whose connection broke may take to come back before it counts as lost.
constexpr Duration kReturnLimit = std::chrono::milliseconds(500);
// Beyond the shutdown timeout a member gets this long to confirm that its workers are gone.
constexpr Duration kStopMargin = std::chrono::seconds(15);
// A younger daemon leaves out this many numbers: nodes that are away may still run a round of which
// nobody here has heard, and no two rounds may have the same number.
constexpr std::uint64_t kUnseenRounds = 100;

bool has_no_workers(const NodeReport& report) noexcept {
    return report.state == NodeState::stopped || report.state == NodeState::finished;
}

// How far a node has come within a round; it never goes back.
int progress(NodeState state) noexcept {
    switch (state) {
        case NodeState::running:
            return 0;
        case NodeState::stopping:
            return 1;
        case NodeState::stopped:
        case NodeState::finished:
            return 2;
    }
    return 2;
}

// True if `a` was true of a node before `b` was.
bool is_older(const NodeReport& a, const NodeReport& b) noexcept {
    return a.round != b.round ? a.round < b.round : progress(a.state) < progress(b.state);
}

}  // namespace

std::string_view to_string(Phase phase) noexcept {
    switch (phase) {
        case Phase::gathering:
            return "gathering";
        case Phase::last_call:
            return "last_call";
        case Phase::running:
            return "running";
        case Phase::stopping:
            return "stopping";
        case Phase::closed:
            return "closed";
    }
    return "unknown";
}

RendezvousCore::RendezvousCore(JobPolicy policy)
    : policy_(std::move(policy)), detector_(policy_.heartbeat_timeout, kReturnLimit) {
    ENSURE(validate(policy_).has_value());
}

Effects RendezvousCore::step(Instant now, const Event& event) {
    std::visit([&](const auto& e) { on(now, e); }, event);
    return std::exchange(effects_, {});
}

// ---- What nodes say.

void RendezvousCore::on(Instant now, const NodeJoined& event) {
    if (phase_ == Phase::closed) {
        effects_.push_back({event.node, Closed{*verdict_}});
        return;
    }
    if (const std::optional<Refused> refused = refusal(now, event)) {
        effects_.push_back({event.node, *refused});
        // Those who wait for more nodes must know why this one does not come.
        tell_waiting(refused->reason);
        return;
    }
    const auto [node, is_new] = nodes_.try_emplace(event.node, Node{event.offer, event.report});
    node->second.offer = event.offer;
    hear(now, event.node, node->second, event.report);
}

void RendezvousCore::on(Instant now, const NodeReported& event) {
    const auto found = nodes_.find(event.node);
    if (found == nodes_.end()) {
        if (phase_ == Phase::closed) {
            effects_.push_back({event.node, Closed{*verdict_}});
        } else {
            effects_.push_back({event.node, Fenced{"this node was given up as lost"}});
        }
        return;
    }
    hear(now, event.node, found->second, event.report);
    if (effects_.empty()) {
        effects_.push_back({event.node, Alive{round_}});
    }
}

void RendezvousCore::on(Instant now, const NodeDisconnected& event) {
    detector_.suspect(event.node, now);
    update_ready(now, event.node);
}

void RendezvousCore::on(Instant now, const NodeLeft& event) {
    lose(now, event.node, "left: " + event.reason);
}

void RendezvousCore::on(Instant /*now*/, const StopRequested& event) {
    if (phase_ != Phase::closed) {
        Verdict verdict;
        verdict.outcome = Outcome::stopped;
        verdict.author = event.author;
        verdict.reason = event.reason;
        close(std::move(verdict));
    }
}

void RendezvousCore::on(Instant /*now*/, const DrainRequested& /*event*/) {}

void RendezvousCore::on(Instant /*now*/, const NodeResumed& /*event*/) {}

void RendezvousCore::on(Instant /*now*/, const Restarted& /*event*/) {}

bool RendezvousCore::is_routine(const Event& /*event*/) const {
    return false;
}

void RendezvousCore::hear(Instant now, const NodeId& id, Node& node, const NodeReport& report) {
    detector_.heard(id, now);
    // A daemon that is younger than the job goes on with the job's numbers.
    if (report.round > std::max(round_, round_floor_)) {
        round_floor_ = static_cast<RoundId>(number(report.round) + kUnseenRounds);
    }
    if (!is_older(report, node.report)) {
        node.report = report;
    }
    update_ready(now, id);
    absorb(now, id, node);
    try_form(now);
}

void RendezvousCore::update_ready(Instant now, const NodeId& id) {
    const auto found = nodes_.find(id);
    const bool ready = phase_ != Phase::closed && found != nodes_.end() &&
                       has_no_workers(found->second.report) && !detector_.suspects(id) &&
                       !members_.contains(id);
    if (!ready) {
        ready_.erase(id);
    } else if (ready_.insert(id).second && notice_at_ == Instant::max()) {
        begin_notices(now);
    }
}

void RendezvousCore::absorb(Instant now, const NodeId& id, const Node& node) {
    if (phase_ == Phase::closed) {
        effects_.push_back({id, Closed{*verdict_}});
    } else if (members_.contains(id)) {
        absorb_member(now, id, node);
    } else if (node.report.state == NodeState::running) {
        effects_.push_back(
            {id, Stop{node.report.round,
                      "round " + std::to_string(number(node.report.round)) + " is over"}});
    }
}

void RendezvousCore::absorb_member(Instant now, const NodeId& id, const Node& node) {
    const NodeReport& report = node.report;
    if (report.round < round_) {
        // It has not heard of the round yet, or the word was lost.
        if (phase_ == Phase::running) {
            effects_.push_back({id, Assign{members_.at(id)}});
        } else {
            effects_.push_back({id, Stop{round_, cause_}});
        }
    } else if (phase_ == Phase::running) {
        absorb_running(now, id, node);
    } else if (awaited_.contains(id)) {
        if (failure_ && report.failure && report.round == round_ &&
            outranks(*report.failure, *failure_)) {
            failure_ = report.failure;
            if (!lost_member_) {
                cause_ = describe(*failure_);
            }
        }
        if (has_no_workers(report)) {
            count_out(id, report);
            if (awaited_.empty()) {
                end_stopping(now);
            }
        } else if (report.state == NodeState::running) {
            effects_.push_back({id, Stop{report.round, cause_}});
        }
    }
}

void RendezvousCore::absorb_running(Instant now, const NodeId& id, const Node& node) {
    const NodeReport& report = node.report;
    if (report.round > round_) {
        // It would never obey: it has taken part in a life of the job that this daemon has not
        // seen. The next round's number will be above both.
        begin_stopping(now, "node " + node.offer.name + " knows of round " +
                                std::to_string(number(report.round)) + " already");
    } else if (report.failure) {
        // What ended the round; who fails after that is a consequence, unless it outranks this.
        failure_ = report.failure;
        begin_stopping(now, describe(*report.failure));
    } else if (report.state == NodeState::finished) {
        someone_finished_ = true;
        awaited_.erase(id);
        if (awaited_.empty()) {
            end_stopping(now);
        } else if (members_.at(id).group_rank != 0) {
            dismissed_.insert(id);
            effects_.push_back({id, Dismissed{round_}});
        }
    } else if (report.state != NodeState::running) {
        begin_stopping(now, "node " + node.offer.name + " gave the round up");
    }
}

void RendezvousCore::count_out(const NodeId& id, const NodeReport& report) {
    all_finished_ = all_finished_ && report.round == round_ && report.state == NodeState::finished;
    awaited_.erase(id);
}

void RendezvousCore::lose(Instant now, const NodeId& id, const std::string& how) {
    const auto found = nodes_.find(id);
    if (found == nodes_.end()) {
        return;
    }
    if (dismissed_.erase(id) > 0) {
        departed_.insert(found->second.offer.name);  // Its goodbye may have been lost.
    }
    const std::string cause = "node " + found->second.offer.name + " " + how;
    nodes_.erase(found);
    detector_.forget(id);
    ready_.erase(id);
    const bool was_member = members_.erase(id) > 0;
    const bool was_awaited = awaited_.erase(id) > 0;
    if (was_member && was_awaited) {
        lost_member_ = true;
        all_finished_ = false;
        if (phase_ == Phase::running) {
            begin_stopping(now, cause);
        } else {
            cause_ = cause;
            if (awaited_.empty()) {
                end_stopping(now);
            }
        }
    }
    if (!close_if_deserted()) {
        try_form(now);
    }
}

// Who has finished and gone does not come back; to wait for it would only look like a hang.
bool RendezvousCore::close_if_deserted() {
    const bool waits = phase_ == Phase::gathering || phase_ == Phase::last_call;
    if (!waits || departed_.empty() || nodes_.size() >= policy_.nodes_min) {
        return false;
    }
    close(departure_verdict());
    return true;
}

// ---- From one round to the next.

void RendezvousCore::begin_stopping(Instant now, const std::string& reason) {
    ENSURE(phase_ == Phase::running);
    phase_ = Phase::stopping;
    cause_ = reason;
    deadline_ = after(after(now, policy_.shutdown_timeout), kStopMargin);
    // The finished are not awaited; of the others, who has stopped already is done.
    const std::set<NodeId> awaited = awaited_;
    for (const NodeId& id : awaited) {
        const NodeReport& report = nodes_.at(id).report;
        if (report.round >= round_ && has_no_workers(report)) {
            count_out(id, report);
        } else {
            effects_.push_back({id, Stop{std::max(round_, report.round), reason}});
        }
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
    }
    try_form(now);
}

void RendezvousCore::try_form(Instant now) {
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
    const bool door_closed = phase_ == Phase::last_call && now >= deadline_;
    if (full || everyone || door_closed || policy_.last_call == Duration::zero()) {
        form(now);
    } else if (phase_ == Phase::gathering) {
        phase_ = Phase::last_call;
        deadline_ = after(
            now, survivors_first_ ? std::min(kReturnLimit, policy_.last_call) : policy_.last_call);
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
        lose(now, id, "is lost: " + reason);
    }
    if (phase_ == Phase::last_call && now >= deadline_) {
        try_form(now);
    } else if (phase_ == Phase::stopping && now >= deadline_) {
        const std::set<NodeId> stuck = awaited_;
        for (const NodeId& id : stuck) {
            lose(now, id, "is lost: it did not confirm that its workers are gone");
        }
    }
    if (may_grow() && now >= after(round_began_, policy_.grow_after)) {
        begin_stopping(now,
                       (ready_.size() == 1 ? "node " : "nodes ") + names_of(ready_) + " joined");
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
