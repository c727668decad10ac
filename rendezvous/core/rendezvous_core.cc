// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/core/rendezvous_core.h"

#include <algorithm>
#include <utility>

namespace regroup::rendezvous {

namespace {

// How long a node whose connection broke may take to come back before it counts as lost.
constexpr Duration kReturnLimit = std::chrono::milliseconds(500);
// Beyond the shutdown timeout a member gets this long to confirm that its workers are gone.
constexpr Duration kStopMargin = std::chrono::seconds(15);
// Waiting nodes are told what they wait for after the first interval, then at doubling ones.
constexpr Duration kNoticeFirst = std::chrono::seconds(1);
constexpr Duration kNoticeLimit = std::chrono::seconds(30);
// A notice names this many nodes at most.
constexpr std::size_t kNoticeNames = 32;

bool has_no_workers(const NodeReport& report) noexcept {
    return report.state == NodeState::stopped || report.state == NodeState::finished;
}

std::string counted(std::size_t count, const std::string& what) {
    return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::string range(const JobPolicy& policy) {
    return std::to_string(policy.nodes_min) + ":" + std::to_string(policy.nodes_max);
}

// The first field in which two members contradict each other, as "--flag=theirs, ... ours".
std::optional<std::string> contradiction(const JobPolicy& mine, const JobPolicy& theirs) {
    const auto differ = [](const std::string& flag, const std::string& a, const std::string& b) {
        return std::optional(flag + " " + a + " here, " + b + " there");
    };
    if (mine.nodes_min != theirs.nodes_min || mine.nodes_max != theirs.nodes_max) {
        return differ("--nnodes is", range(theirs), range(mine));
    }
    if (mine.program != theirs.program) {
        return differ("the program is", theirs.program, mine.program);
    }
    if (mine.restarts_max != theirs.restarts_max) {
        return differ("--max-restarts is", std::to_string(theirs.restarts_max),
                      std::to_string(mine.restarts_max));
    }
    const auto differ_time = [&](const char* flag, Duration a, Duration b) {
        return a == b ? std::nullopt : differ(flag, format_duration(b), format_duration(a));
    };
    for (const auto& found :
         {differ_time("--last-call is", mine.last_call, theirs.last_call),
          differ_time("--heartbeat-timeout is", mine.heartbeat_timeout, theirs.heartbeat_timeout),
          differ_time("--shutdown-timeout is", mine.shutdown_timeout, theirs.shutdown_timeout),
          differ_time("--grow-after is", mine.grow_after, theirs.grow_after)}) {
        if (found) {
            return found;
        }
    }
    return std::nullopt;
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
        return;
    }
    // A daemon that is younger than the job goes on with the job's numbers.
    round_floor_ = std::max(round_floor_, event.report.round);
    nodes_.insert_or_assign(event.node, Node{event.offer, event.report});
    detector_.heard(event.node, now);
    if (notice_at_ == Instant::max()) {
        notice_interval_ = kNoticeFirst;
        notice_at_ = after(now, notice_interval_);
    }
    absorb(now, event.node);
    try_form(now, false);
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
    const bool was_suspect = detector_.suspects(event.node);
    detector_.heard(event.node, now);
    const NodeReport previous = std::exchange(found->second.report, event.report);
    if (!found->second.report.failure && previous.failure &&
        previous.round == event.report.round) {
        found->second.report.failure = previous.failure;
    }
    absorb(now, event.node);
    if (was_suspect || previous.state != event.report.state) {
        try_form(now, false);
    }
    if (effects_.empty()) {
        effects_.push_back({event.node, Alive{round_}});
    }
}

void RendezvousCore::on(Instant now, const NodeDisconnected& event) {
    detector_.suspect(event.node, now);
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

std::optional<Refused> RendezvousCore::refusal(Instant now, const NodeJoined& event) const {
    const std::string who = "node " + event.offer.name;
    if (const auto found = contradiction(policy_, event.policy)) {
        std::string other = "the job";
        for (const auto& [id, node] : nodes_) {
            if (id != event.node) {
                other = "node " + node.offer.name;
                break;
            }
        }
        return Refused{Errc::invalid_argument, who + " contradicts " + other + ": " + *found +
                                                   "; give all nodes the same"};
    }
    if (event.offer.workers == 0) {
        return Refused{Errc::invalid_argument, who + " offers no workers"};
    }
    if (event.offer.slot && *event.offer.slot >= policy_.nodes_max) {
        return Refused{Errc::invalid_argument,
                       "--node-rank " + std::to_string(*event.offer.slot) + " of " + who +
                           " is outside --nnodes " + range(policy_)};
    }
    if (!nodes_.contains(event.node) && nodes_.size() >= kNodesLimit) {
        return Refused{Errc::overloaded,
                       "the job has " + std::to_string(nodes_.size()) + " nodes already"};
    }
    for (const auto& [id, node] : nodes_) {
        // A claimant of the same slot replaces a node that is as good as lost; two live ones with
        // the same number are a mistake in somebody's command line.
        const bool alive = !detector_.suspects(id) &&
                           now - detector_.heard_at(id) < policy_.heartbeat_timeout / 2;
        if (event.offer.slot && node.offer.slot == event.offer.slot && id != event.node && alive) {
            return Refused{Errc::invalid_argument,
                           who + " and node " + node.offer.name + " both claim --node-rank " +
                               std::to_string(*event.offer.slot)};
        }
    }
    return std::nullopt;
}

void RendezvousCore::absorb(Instant now, const NodeId& id) {
    const Node& node = nodes_.at(id);
    if (phase_ == Phase::closed) {
        effects_.push_back({id, Closed{*verdict_}});
    } else if (members_.contains(id)) {
        absorb_member(now, id, node);
    } else if (node.report.state == NodeState::running) {
        effects_.push_back({id, Stop{node.report.round,
                                     "round " + std::to_string(number(node.report.round)) +
                                         " is over"}});
    }
}

void RendezvousCore::absorb_member(Instant now, const NodeId& id, const Node& node) {
    const NodeReport& report = node.report;
    if (report.round != round_) {
        // It has not heard of the round yet, or the word was lost.
        if (phase_ == Phase::running) {
            effects_.push_back({id, Assign{members_.at(id)}});
        } else {
            effects_.push_back({id, Stop{round_, cause_}});
        }
        return;
    }
    if (report.failure && !failure_) {
        failure_ = report.failure;
    }
    if (phase_ == Phase::running) {
        if (report.failure) {
            begin_stopping(now, describe(*report.failure));
        } else if (report.state == NodeState::finished) {
            awaited_.erase(id);
            if (awaited_.empty()) {
                end_stopping(now);
            }
        } else if (report.state != NodeState::running) {
            begin_stopping(now, "node " + node.offer.name + " stopped its workers by itself");
        }
        return;
    }
    if (!awaited_.contains(id)) {
        return;
    }
    if (has_no_workers(report)) {
        all_finished_ = all_finished_ && report.state == NodeState::finished;
        awaited_.erase(id);
        if (awaited_.empty()) {
            end_stopping(now);
        }
    } else if (report.state == NodeState::running) {
        effects_.push_back({id, Stop{round_, cause_}});
    }
}

void RendezvousCore::lose(Instant now, const NodeId& id, const std::string& reason) {
    const auto found = nodes_.find(id);
    if (found == nodes_.end()) {
        return;
    }
    const std::string name = found->second.offer.name;
    nodes_.erase(found);
    detector_.forget(id);
    if (phase_ == Phase::closed) {
        return;
    }
    const bool was_member = members_.erase(id) > 0;
    const bool was_awaited = awaited_.erase(id) > 0;
    if (was_member && was_awaited) {
        lost_member_ = true;
        all_finished_ = false;
        const std::string cause = "node " + name + " is lost: " + reason;
        if (phase_ == Phase::running) {
            begin_stopping(now, cause);
        } else {
            cause_ = cause;
            if (awaited_.empty()) {
                end_stopping(now);
            }
        }
    } else if (phase_ == Phase::gathering || phase_ == Phase::last_call) {
        try_form(now, false);
    }
}

// ---- From one round to the next.

void RendezvousCore::begin_stopping(Instant now, const std::string& reason) {
    ENSURE(phase_ == Phase::running);
    phase_ = Phase::stopping;
    cause_ = reason;
    deadline_ = after(after(now, policy_.shutdown_timeout), kStopMargin);
    // The finished are not awaited; of the others, who has stopped already is done.
    for (auto it = awaited_.begin(); it != awaited_.end();) {
        const NodeReport& report = nodes_.at(*it).report;
        if (report.round == round_ && has_no_workers(report)) {
            all_finished_ = all_finished_ && report.state == NodeState::finished;
            it = awaited_.erase(it);
        } else {
            effects_.push_back({*it, Stop{round_, reason}});
            ++it;
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
        verdict.restarts = failures_;
        close(std::move(verdict));
        return;
    }
    // A lost node explains the failures of its peers, and costs nothing.
    if (failure_ && !lost_member_) {
        if (failures_ == policy_.restarts_max) {
            Verdict verdict;
            verdict.outcome = Outcome::failed;
            verdict.exit_code = shell_exit_code(*failure_);
            verdict.author = "node " + failure_->node;
            verdict.reason = describe(*failure_) + "; " +
                             (policy_.restarts_max == 0
                                  ? std::string("no restarts are allowed (--max-restarts 0)")
                                  : "all " + counted(policy_.restarts_max, "restart") +
                                        " used (--max-restarts " +
                                        std::to_string(policy_.restarts_max) + ")");
            verdict.restarts = failures_;
            verdict.failure = failure_;
            close(std::move(verdict));
            return;
        }
        ++failures_;
    }
    phase_ = Phase::gathering;
    members_.clear();
    if (notice_at_ == Instant::max() || notice_interval_ != kNoticeFirst) {
        notice_interval_ = kNoticeFirst;
        notice_at_ = after(now, notice_interval_);
    }
    try_form(now, true);
}

std::vector<Member> RendezvousCore::candidates() const {
    std::vector<Member> result;
    for (const auto& [id, node] : nodes_) {
        if (has_no_workers(node.report) && !detector_.suspects(id) && !members_.contains(id)) {
            result.push_back({id, node.offer, node.report.store_port});
        }
    }
    return result;
}

void RendezvousCore::try_form(Instant now, bool survivors_only) {
    if (phase_ != Phase::gathering && phase_ != Phase::last_call) {
        return;
    }
    std::vector<Member> ready = candidates();
    if (ready.size() < policy_.nodes_min) {
        phase_ = Phase::gathering;
        deadline_ = Instant::max();
        return;
    }
    const bool full = ready.size() >= policy_.nodes_max;
    // After a round everyone who is missing is known to be lost, so there is nobody to wait for,
    // unless somebody is under suspicion and about to be either back or lost.
    const bool everyone = survivors_only && !detector_.suspects_any();
    const bool door_closed = phase_ == Phase::last_call && now >= deadline_;
    if (full || everyone || door_closed || policy_.last_call == Duration::zero()) {
        form(now, std::move(ready));
    } else if (phase_ == Phase::gathering) {
        phase_ = Phase::last_call;
        deadline_ = after(now, survivors_only ? std::min(kReturnLimit, policy_.last_call)
                                              : policy_.last_call);
    }
}

void RendezvousCore::form(Instant now, std::vector<Member> candidates) {
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
    for (std::size_t i = 0; i < members.size(); ++i) {
        assignments[i].round = round_;
        assignments[i].restart_count = failures_;
        assignments[i].reason = cause_;
        awaited_.insert(members[i].node);
        effects_.push_back({members[i].node, Assign{assignments[i]}});
        members_.emplace(members[i].node, std::move(assignments[i]));
    }
    if (nodes_.size() > members_.size()) {
        notice_interval_ = kNoticeFirst;
        notice_at_ = after(now, notice_interval_);
    }
}

bool RendezvousCore::may_grow() const {
    // A round in which somebody has finished is about to end: it is not worth a restart.
    return phase_ == Phase::running && members_.size() < policy_.nodes_max &&
           nodes_.size() > members_.size() && awaited_.size() == members_.size() &&
           !candidates().empty();
}

void RendezvousCore::grow(Instant now) {
    const std::vector<Member> waiting = candidates();
    std::string names;
    for (const Member& member : waiting) {
        names += (names.empty() ? "" : ", ") + member.offer.name;
    }
    begin_stopping(now, (waiting.size() == 1 ? "node " : "nodes ") + names + " joined");
}

void RendezvousCore::close(Verdict verdict) {
    phase_ = Phase::closed;
    deadline_ = Instant::max();
    notice_at_ = Instant::max();
    verdict_ = std::move(verdict);
    members_.clear();
    awaited_.clear();
    for (const auto& [id, node] : nodes_) {
        effects_.push_back({id, Closed{*verdict_}});
    }
}

// ---- The passing of time.

Effects RendezvousCore::advance(Instant now) {
    for (const auto& [id, reason] : detector_.lost(now)) {
        lose(now, id, reason);
    }
    if (phase_ == Phase::last_call && now >= deadline_) {
        try_form(now, false);
    } else if (phase_ == Phase::stopping && now >= deadline_) {
        const std::set<NodeId> stuck = awaited_;
        for (const NodeId& id : stuck) {
            lose(now, id, "it did not confirm that its workers are gone");
        }
    }
    if (may_grow() && now >= after(round_began_, policy_.grow_after)) {
        grow(now);
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

void RendezvousCore::send_notices(Instant now) {
    Waiting notice;
    notice.nodes_min = policy_.nodes_min;
    notice.nodes_max = policy_.nodes_max;
    notice.detail = explain(now);
    for (const auto& [id, node] : nodes_) {
        if (notice.joined.size() == kNoticeNames) {
            break;
        }
        notice.joined.push_back(node.offer.name);
    }
    bool anyone = false;
    for (const auto& [id, node] : nodes_) {
        if (!members_.contains(id) && has_no_workers(node.report)) {
            notice.spare = phase_ == Phase::running && members_.size() >= policy_.nodes_max;
            effects_.push_back({id, notice});
            anyone = true;
        }
    }
    notice_interval_ = std::min(notice_interval_ * 2, kNoticeLimit);
    notice_at_ = anyone ? after(now, notice_interval_) : Instant::max();
}

std::string RendezvousCore::name_of(const NodeId& id) const {
    const auto found = nodes_.find(id);
    return found == nodes_.end() ? id : found->second.offer.name;
}

std::string RendezvousCore::names_of(const std::set<NodeId>& ids) const {
    std::string result;
    std::size_t count = 0;
    for (const NodeId& id : ids) {
        if (++count > kNoticeNames) {
            result += ", ...";
            break;
        }
        result += (result.empty() ? "" : ", ") + name_of(id);
    }
    return result;
}

std::string RendezvousCore::explain(Instant now) const {
    const auto left = [&] { return format_duration(deadline_ - now); };
    switch (phase_) {
        case Phase::gathering:
            return std::to_string(candidates().size()) + " of " +
                   counted(policy_.nodes_min, "node") + " ready, waiting for " +
                   std::to_string(policy_.nodes_min - std::min<std::size_t>(
                                                          policy_.nodes_min, candidates().size())) +
                   " more";
        case Phase::last_call:
            return counted(candidates().size(), "node") + " ready (minimum " +
                   std::to_string(policy_.nodes_min) + ", maximum " +
                   std::to_string(policy_.nodes_max) + "), last call for " + left();
        case Phase::running:
            return "round " + std::to_string(number(round_)) + " is running on " +
                   counted(members_.size(), "node");
        case Phase::stopping:
            return "round " + std::to_string(number(round_)) + " is stopping because " + cause_ +
                   "; waiting for " + names_of(awaited_) + " for " + left();
        case Phase::closed:
            return "closed by " + verdict_->author + ": " + verdict_->reason;
    }
    return {};
}

}  // namespace regroup::rendezvous
