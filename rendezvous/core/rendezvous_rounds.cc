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

// A decision names so many arrivals at most.
constexpr std::size_t kNamesInDecision = 4;

}  // namespace

void RendezvousCore::begin_stopping(Instant now, const std::string& reason, bool planned,
                                    std::optional<Instant> sign) {
    ENSURE(phase_ == Phase::running || phase_ == Phase::preparing);
    if (phase_ == Phase::running) {
        round_ended_ = now;
    }
    Instant first = sign.value_or(now);
    for (const auto& [id, assignment] : members_) {
        const Node& node = nodes_.at(id);
        if (!planned && node.report.round == round_ && node.ended_at >= round_began_) {
            first = std::min(first, node.ended_at);
        }
    }
    if (phase_ == Phase::running || ledger_.awaits_training()) {
        ledger_.begin(round_, planned, first, now);
    } else if (!planned) {
        ledger_.spoil(first);
    }
    inquiry_.reset();
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
    if (awaited_.empty()) {
        end_stopping(now);
    }
}

void RendezvousCore::end_stopping(Instant now) {
    ENSURE(awaited_.empty());
    if (phase_ == Phase::preparing && ledger_.awaits_training()) {
        ledger_.begin(round_, true, now, now);  // The word of its first step was lost.
    }
    deadline_ = Instant::max();
    inquiry_.reset();
    explain_break();
    ledger_.stopped(now, cause_);
    if (all_finished_ && !members_.empty()) {
        Verdict verdict;
        verdict.outcome = Outcome::succeeded;
        verdict.exit_code = 0;
        verdict.author = "the workers";
        verdict.reason = "all workers finished";
        close(now, std::move(verdict));
        return;
    }
    // What a job may lose does not count while all leave it.
    decide_again();
    if (evacuation_.empty() && leave_after_all(now)) {
        return;
    }
    const bool all_leave_later = detain_laggards(now);
    if (!evacuation_.empty()) {
        close(now, drained_verdict());
        return;
    }
    if (std::optional<Verdict> verdict = all_leave_later ? std::nullopt : settle(now)) {
        close(now, std::move(*verdict));
        return;
    }
    phase_ = Phase::gathering;
    if (close_if_deserted(now)) {
        return;
    }
    if (nodes_.size() < policy_.nodes_min) {
        release_detained(now);
    }
    survivors_first_ = true;
    begin_notices(now);
    mortal_ = 0;
    for (const auto& [id, assignment] : std::exchange(members_, {})) {
        const Node& node = nodes_.at(id);
        update_ready(now, id);
        if (is_leaving(node)) {
            tell_to_leave(id, node);
            continue;
        }
        survivors_.insert(id);
        if (detector_.suspects(id)) {
            missing_.insert(id);
        }
    }
    try_form(now);
}

void RendezvousCore::try_form(Instant now, bool door_closed) {
    if (phase_ != Phase::gathering && phase_ != Phase::last_call) {
        return;
    }
    if (ready_.size() < policy_.nodes_min && missing_.empty()) {
        pardon(now);
    }
    if (ready_.size() < policy_.nodes_min || is_resting()) {
        phase_ = Phase::gathering;
        deadline_ = hold_until_ = Instant::max();
        hold_since_.reset();
        if (is_resting()) {
            ledger_.held();
        } else {
            survivors_first_ = survivors_first_ && !missing_.empty();
        }
        return;
    }
    if (awaits_holder(now)) {
        phase_ = Phase::gathering;
        deadline_ = Instant::max();
        ledger_.held();
        return;
    }
    const bool full = ready_.size() >= policy_.nodes_max;
    // After a round everyone who is missing is known to be lost, so there is nobody to wait for,
    // unless a survivor is under suspicion and about to be either back or lost.
    const bool everyone = survivors_first_ && missing_.empty();
    const bool at_once = !survivors_first_ && policy_.last_call == Duration::zero();
    if (full || everyone || door_closed || at_once) {
        form(now);
    } else if (phase_ == Phase::gathering) {
        phase_ = Phase::last_call;
        deadline_ = after(now, policy_.last_call);
        if (survivors_first_) {
            ledger_.held();
            deadline_ = now;
            for (const NodeId& id : missing_) {
                deadline_ = std::max(deadline_, detector_.lost_at(id));
            }
        }
    }
}

void RendezvousCore::form(Instant now) {
    std::vector<Member> candidates;
    for (const NodeId& id : ready_) {
        const Node& node = nodes_.at(id);
        // Where all leave, or the rendezvous goes with it, nobody is to take its place.
        const bool leaves = node.detained && postponed_.empty() && !node.offer.hosts_rendezvous;
        candidates.push_back({id, node.offer, node.report.store_port, node.report.resident,
                              node.report.held_step, leaves});
    }
    const std::vector<Member> members = ranks_.arrange(std::move(candidates), policy_.nodes_max);
    std::vector<Assignment> assignments = assign_ranks(members);
    if (cause_.empty()) {
        cause_ = counted(members.size(), "node") + " joined";
    }
    const std::string decided = decision(members);
    phase_ = Phase::running;
    round_ = next(std::max(round_, round_floor_));
    reached_.formed(held_by_ready());
    begin_round(now);
    ledger_.formed(now, round_, decided);
    for (std::size_t i = 0; i < members.size(); ++i) {
        const NodeId& id = members[i].node;
        assignments[i].round = round_;
        assignments[i].restart_count = budget_.restarts();
        assignments[i].reason = cause_;
        awaited_.insert(id);
        unconfirmed_.insert(id);
        ready_.erase(id);
        prestarted_.erase(id);
        roster_.emplace_back(id, members[i].offer.name);
        mortal_ += nodes_.at(id).report.resident ? 0 : 1;
        effects_.push_back({id, Assign{assignments[i]}});
        members_.emplace(id, std::move(assignments[i]));
    }
    if (!ready_.empty() || !strikes_.aside().empty()) {
        begin_notices(now);
    }
}

void RendezvousCore::begin_round(Instant now) {
    round_began_ = now;
    first_began_ = first_began_.value_or(now);
    deadline_ = hold_until_ = Instant::max();
    hold_since_.reset();
    notice_at_ = Instant::max();
    failure_.reset();
    severed_at_.reset();
    severed_ = false;
    given_up_ = false;
    blameless_ = false;
    lost_member_ = false;
    lost_names_.clear();
    gone_.clear();
    all_finished_ = true;
    someone_finished_ = false;
    parked_ = false;
    boundary_ = false;
    dismissed_.clear();
    departed_.clear();
    survivors_.clear();
    missing_.clear();
    roster_.clear();
    unconfirmed_.clear();
    hanging_.clear();
    alarms_ = 0;
    mortal_ = 0;
    expects_resumed_ = is_elastic_;
    step_at_form_ = budget_.step();
    trains_since_.reset();
}

// What became of the last round's places, in a few words.
std::string RendezvousCore::decision(const std::vector<Member>& members) const {
    std::map<NodeId, std::size_t> slots;  // Of the last round.
    for (std::size_t slot = 0; slot < roster_.size(); ++slot) {
        slots.emplace(roster_[slot].first, slot);
    }
    std::string arrivals;
    std::size_t arrivals_count = 0;
    for (std::size_t slot = 0; slot < members.size(); ++slot) {
        if (slots.contains(members[slot].node) || ++arrivals_count > kNamesInDecision) {
            continue;
        }
        const std::string& name = members[slot].offer.name;
        const bool returns = slot < roster_.size() && roster_[slot].second == name;
        const bool spare = roster_.size() >= policy_.nodes_max;
        arrivals += (arrivals.empty() ? "" : ", ") +
                    (returns ? "node " + name + " came back to slot "
                             : (spare ? "spare " : "node ") + name + " took slot ") +
                    std::to_string(slot);
    }
    if (arrivals_count > kNamesInDecision) {
        arrivals += " and " + std::to_string(arrivals_count - kNamesInDecision) + " more";
    }
    std::string size;
    if (members.size() != roster_.size()) {
        size = (members.size() < roster_.size() ? "going on with " : "grown to ") +
               counted(members.size(), "node");
    }
    if (size.empty() && arrivals.empty()) {
        return failure_ && !lost_member_ ? "started again on node " + failure_->node
                                         : "the same nodes again";
    }
    return size + (size.empty() || arrivals.empty() ? "" : ": ") + arrivals;
}

void RendezvousCore::close(Instant now, Verdict verdict) {
    tell_recovered(ledger_.close(now, verdict.outcome == Outcome::succeeded));
    phase_ = Phase::closed;
    deadline_ = hold_until_ = Instant::max();
    notice_at_ = Instant::max();
    rest_until_ = Instant::max();
    inquiry_.reset();
    verdict_ = std::move(verdict);
    verdict_->restarts = budget_.restarts();
    verdict_->goodput = ledger_.goodput();
    verdict_->goodput.lasted = first_began_ ? now - *first_began_ : Duration::zero();
    ready_.clear();
    prestarted_.clear();
    members_.clear();
    mortal_ = 0;
    awaited_.clear();
    hanging_.clear();
    unconfirmed_.clear();
    survivors_.clear();
    missing_.clear();
    for (const auto& [id, node] : nodes_) {
        effects_.push_back({id, Closed{*verdict_}});
    }
}

void RendezvousCore::follow_up(Instant now) {
    const bool any_put_off = !detained_.empty() || !postponed_.empty();
    if (any_put_off && phase_ == Phase::running && !ledger_.awaits_training()) {
        release_detained(now);
    }
    offer_prestart(now);
    tell_newcomers(now);
}

// ---- The passing of time.

Effects RendezvousCore::advance(Instant now) {
    lose_silent(now);
    if (const Wait wait = wait_for_nodes(); now >= wait.until) {
        close(now, want_verdict(wait.lasts));
    }
    if (phase_ != Phase::closed) {
        update_named(now, strikes_.expire(now));
        if (now >= rest_until_) {
            rest_until_ = Instant::max();
        }
    }
    if (phase_ == Phase::last_call && now >= deadline_) {
        try_form(now, true);
    } else if (phase_ == Phase::preparing && now >= deadline_) {
        begin_stopping(now, cause_ + ", and not all workers reached a step boundary in time", true);
    } else if (phase_ == Phase::stopping && now >= deadline_) {
        lose_stuck(now);
    }
    try_form(now);
    if (now >= severed_until()) {
        overdue_links(now);
    }
    if (inquiry_ && now >= inquiry_->deadline) {
        overdue_inquiry(now);
    }
    if (now >= grow_at()) {
        begin_change(now, (ready_.size() == 1 ? "node " : "nodes ") + names_of(ready_) + " joined");
    }
    if (trains_since_ && now >= after(*trains_since_, policy_.heartbeat_timeout)) {
        tell_recovered(
            ledger_.running(*std::exchange(trains_since_, std::nullopt), budget_.step()));
        begin_planned_incident(now);
    }
    if (now >= notice_at_) {
        send_notices(now);
    }
    follow_up(now);
    return std::exchange(effects_, {});
}

Instant RendezvousCore::next_deadline() const {
    return std::min(next_decision(), notice_at_);
}

Instant RendezvousCore::next_decision() const {
    const Instant inquiry = inquiry_ ? inquiry_->deadline : Instant::max();
    const Instant trains =
        trains_since_ ? after(*trains_since_, policy_.heartbeat_timeout) : Instant::max();
    const Instant aside = phase_ == Phase::closed ? Instant::max() : strikes_.next_deadline();
    return std::min({detector_.next_deadline(), deadline_, rest_until_, hold_until_, grow_at(),
                     severed_until(), inquiry, trains, aside, wait_for_nodes().until});
}

}  // namespace regroup::rendezvous
