// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/core/rendezvous_core.h"

#include <algorithm>
#include <utility>

#include "rendezvous/core/node_state.h"
#include "rendezvous/core/wording.h"

namespace regroup::rendezvous {

namespace {

// A younger daemon leaves out this many numbers: nodes that are away may still run a round of which
// nobody here has heard, and no two rounds may have the same number.
constexpr std::uint64_t kUnseenRounds = 100;

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
        case Phase::preparing:
            return "preparing";
        case Phase::stopping:
            return "stopping";
        case Phase::closed:
            return "closed";
    }
    return "unknown";
}

RendezvousCore::RendezvousCore(JobPolicy policy)
    : policy_(std::move(policy)),
      detector_(policy_.heartbeat_timeout, policy_.regroup_call),
      budget_(policy_),
      strikes_(policy_.budgets.strikes_max, policy_.budgets.strikes_window) {
    ENSURE(validate(policy_).has_value());
}

Effects RendezvousCore::step(Instant now, const Event& event) {
    std::visit([&](const auto& e) { on(now, e); }, event);
    follow_up(now);
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
        tell_waiting(now, refused->reason);
        return;
    }
    const auto [node, is_new] = nodes_.try_emplace(event.node, Node{event.offer, event.report, {}});
    node->second.offer = event.offer;
    housed_ = housed_ || event.offer.ends_with_daemon;
    newcomers_.insert(event.node);
    const bool was_drained = is_new && resume_drain(event.node, node->second);
    if (is_new && wants_to_leave(node->second)) {
        detain_if_needed(now, event.node, node->second);
    }
    // What was told while it was away. Who has heard it all the same knows it again.
    std::vector<Incident> missed;
    if (members_.contains(event.node) && event.report.round == round_) {
        missed = ledger_.again(round_);
    }
    const RoundId round = round_;
    hear(now, event.node, node->second, event.report);
    for (Incident& incident : missed) {
        effects_.push_back({event.node, Recovered{std::move(incident)}});
    }
    const bool is_in_next = node->second.detained && round_ != round;
    if (was_drained && !is_in_next) {
        begin_leaving(now, event.node, node->second);
    }
    if (is_new && event.offer.ends_with_daemon) {
        lose_predecessors(now, event.node);
    }
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
    if (survivors_.contains(event.node)) {
        missing_.insert(event.node);
    }
    try_form(now);
}

void RendezvousCore::on(Instant now, const NodeLeft& event) {
    lose(now, event.node, "left: " + event.reason, event.killed ? Departure::lost : Departure::left,
         now);
}

void RendezvousCore::on(Instant now, const StopRequested& event) {
    if (phase_ != Phase::closed) {
        Verdict verdict;
        verdict.outcome = Outcome::stopped;
        verdict.author = event.author;
        verdict.reason = event.reason;
        close(now, std::move(verdict));
    }
}

void RendezvousCore::on(Instant /*now*/, const JobFollows& event) {
    round_floor_ = std::max(round_floor_, event.last);
}

bool RendezvousCore::is_routine(const Event& event) const {
    const auto* reported = std::get_if<NodeReported>(&event);
    if (reported == nullptr || phase_ == Phase::closed) {
        return false;
    }
    const auto found = nodes_.find(reported->node);
    if (found == nodes_.end() || detector_.suspects(reported->node)) {
        return false;
    }
    const Node& node = found->second;
    if (inquiry_ || node.report.hang || unconfirmed_.contains(reported->node)) {
        return false;
    }
    const bool first_step = expects_resumed_ && ledger_.awaits_training() && !trains_since_ &&
                            trains(node.report, reported->report);
    NodeReport expected = node.report;
    expected.step = reported->report.step;
    if (node.report.state == NodeState::running &&
        reported->report.held_step >= node.report.held_step) {
        expected.held_step = reported->report.held_step;
    }
    expected.at_work = std::min(node.report.at_work, reported->report.at_work);  // Nearer by now.
    expected.ended_ago = reported->report.ended_ago;
    return !first_step && expected == reported->report && expected.step >= node.report.step &&
           !wants_word(reported->node, node);
}

void RendezvousCore::hear(Instant now, const NodeId& id, Node& node, const NodeReport& report) {
    detector_.heard(id, now);
    // A daemon that is younger than the job goes on with the job's numbers.
    // Before its first round the furthest of all counts, whoever speaks first.
    const RoundId known = round_ == RoundId::none ? RoundId::none : std::max(round_, round_floor_);
    if (report.round > known) {
        round_floor_ =
            std::max(round_floor_, static_cast<RoundId>(number(report.round) + kUnseenRounds));
    }
    missing_.erase(id);
    const RoundId round = round_;
    const bool was_leaving = is_leaving(node) || wants_to_leave(node);
    if (!is_older(report, node.report)) {
        learn(now, id, node, report);
        if (!was_leaving && wants_to_leave(node)) {
            detain_if_needed(now, id, node);
        }
    }
    update_ready(now, id);
    absorb(now, id, node);
    const bool is_in_next = node.detained && round_ != round;
    if (!was_leaving && wants_to_leave(node) && !is_in_next) {
        begin_leaving(now, id, node);
    }
    try_form(now);
}

void RendezvousCore::learn(Instant now, const NodeId& id, Node& node, const NodeReport& report) {
    if (members_.contains(id) && node.report.resident != report.resident) {
        mortal_ = report.resident ? mortal_ - 1 : mortal_ + 1;
    }
    const bool is_known = node.report.state == NodeState::stopped;
    if (report.state == NodeState::stopped && (!is_known || report.round > node.report.round)) {
        node.stopped_at = now;
    }
    const NodeReport before = std::exchange(node.report, report);
    const bool goes_on = report.state == NodeState::running && report.broken_links.empty();
    if (report.ended_ago > Duration::zero()) {
        node.ended_at = now - report.ended_ago;
    } else if (goes_on || report.round != before.round) {
        node.ended_at = Instant::max();
    }
    if (phase_ == Phase::stopping && members_.contains(id) && report.round == round_ &&
        node.ended_at >= round_began_) {
        ledger_.seen_at(node.ended_at);
    }
    // What is only nearer by now may be left out of a journal, and so changes nothing.
    if (report.at_work == Duration::zero()) {
        node.at_work_until = Instant::min();
    } else if (report.at_work > before.at_work || node.at_work_until == Instant::min()) {
        node.at_work_until = after(now, report.at_work);
    }
    // What a round has reached that has not said where it began is not to be compared with that.
    if (members_.contains(id) && report.round == round_ && !ledger_.awaits_training()) {
        reached_.heard(report);
    }
    if (report.resident) {
        is_elastic_ = true;
        budget_.expect_steps();
    }
    budget_.reach(report.step);
    confirm(now, id, before, report);
}

void RendezvousCore::update_ready(Instant now, const NodeId& id) {
    const auto found = nodes_.find(id);
    const bool ready = phase_ != Phase::closed && found != nodes_.end() &&
                       has_no_workers(found->second.report) && !detector_.suspects(id) &&
                       !is_leaving(found->second) && !members_.contains(id) &&
                       !strikes_.is_aside(found->second.offer.name);
    if (!ready) {
        ready_.erase(id);
        prestarted_.erase(id);
    } else if (ready_.insert(id).second) {
        newcomers_.insert(id);
        if (notice_at_ == Instant::max()) {
            begin_notices(now);
        }
    }
}

bool RendezvousCore::wants_word(const NodeId& id, const Node& node) const {
    const NodeReport& report = node.report;
    if (const auto member = members_.find(id); member != members_.end()) {
        if (phase_ == Phase::stopping && report.round == round_ && !report.failure &&
            report.state != NodeState::running) {
            return false;  // Its workers are ending, and may take long; or have ended.
        }
        // Who has finished is dismissed again; who is awaited in a change is told again.
        return report.round < round_ || phase_ == Phase::preparing || phase_ == Phase::stopping ||
               report.state != NodeState::running;
    }
    return report.state == NodeState::running || is_leaving(node);
}

void RendezvousCore::absorb(Instant now, const NodeId& id, const Node& node) {
    if (phase_ == Phase::closed) {
        effects_.push_back({id, Closed{*verdict_}});
    } else if (members_.contains(id)) {
        absorb_member(now, id, node);
    } else if (is_leaving(node)) {
        tell_to_leave(id, node);
    } else if (node.report.state == NodeState::running) {
        tell_of_the_end(id, node);
    }
}

void RendezvousCore::absorb_member(Instant now, const NodeId& id, const Node& node) {
    if (node.report.round < round_) {
        // It has not heard of the round yet, or the word was lost. In a round that is to reach a
        // step boundary the others cannot go on without it.
        if (phase_ == Phase::stopping) {
            effects_.push_back({id, Stop{round_, cause_}});
        } else {
            effects_.push_back({id, Assign{members_.at(id)}});
        }
    } else if (phase_ == Phase::running) {
        absorb_running(now, id, node);
    } else if (phase_ == Phase::preparing && awaited_.contains(id)) {
        absorb_preparing(now, id, node);
    } else if (awaited_.contains(id)) {
        absorb_stopping(now, id, node);
    } else if (is_leaving(node) && node.report.round == round_ &&
               node.report.state == NodeState::running) {
        tell_to_prepare(id, node);  // Not awaited, and the word was lost.
    }
}

void RendezvousCore::absorb_stopping(Instant now, const NodeId& id, const Node& node) {
    const NodeReport& report = node.report;
    // What was lost explains any failure after it but one of which the worker says what it is; and
    // a connection that broke, or peers that noticed something or gave up, are explained by a
    // failure: which one that only ended with an error is, shows when all is told.
    const bool first =
        !failure_ && report.failure &&
        (explains_break(*report.failure) || report.failure->kind == FailureKind::user_error ||
         (report.failure->announced && !lost_member_));
    if (report.failure && report.round == round_ &&
        (first || (failure_ && outranks(*report.failure, *failure_)))) {
        failure_ = report.failure;
        if (!lost_member_) {
            cause_ = describe(*failure_);
        }
    }
    if (has_no_workers(report)) {
        count_out(id, node);
        end_if_all_out(now);
    } else if (report.state == NodeState::running) {
        if (may_be_saving(node)) {
            tell_to_prepare(id, node);  // It may not have heard so far.
        } else {
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
        begin_stopping(now, describe(*report.failure), false, sign_of(*report.failure));
    } else if (report.state == NodeState::finished) {
        someone_finished_ = true;
        awaited_.erase(id);
        hanging_.erase(id);
        if (inquiry_) {
            inquiry_->unanswered.erase(id);
        }
        if (awaited_.empty()) {
            round_ended_ = now;
            end_stopping(now);
        } else if (members_.at(id).group_rank != 0) {
            dismissed_.insert(id);
            effects_.push_back({id, Dismissed{round_}});
        }
    } else if (report.state != NodeState::running) {
        stop_given_up(now, node);
    } else {
        consider_links(now, node);
        if (phase_ == Phase::running) {
            consider_hang(now, id, node);
        }
    }
}

void RendezvousCore::count_out(const NodeId& id, const Node& node) {
    // A node that leaves is finished, too, if the boundary at which it would have left was the
    // last.
    all_finished_ =
        all_finished_ && node.report.round == round_ && node.report.state == NodeState::finished;
    awaited_.erase(id);
}

}  // namespace regroup::rendezvous
