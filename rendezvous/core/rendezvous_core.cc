// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/core/rendezvous_core.h"

#include <algorithm>
#include <utility>

#include "rendezvous/core/node_state.h"

namespace regroup::rendezvous {

std::string_view to_string(Phase phase) noexcept {
    switch (phase) {
        case Phase::forming:
            return "forming";
        case Phase::training:
            return "training";
        case Phase::changing:
            return "changing";
        case Phase::ending:
            return "ending";
        case Phase::closed:
            return "closed";
    }
    return "unknown";
}

RendezvousCore::RendezvousCore(JobPolicy policy)
    : policy_(std::move(policy)),
      detector_(policy_.heartbeat_timeout, policy_.regroup_window),
      budget_(policy_),
      failures_(policy_.budgets.node_failures_max, policy_.budgets.node_failures_window) {
    ENSURE(validate(policy_).has_value());
}

Effects RendezvousCore::step(Instant now, const Event& event) {
    job_events_.clear();
    std::visit([&](const auto& e) { observe(now, e); }, event);
    transit(now, Instant::min());
    reconcile(now);
    return std::exchange(effects_, {});
}

Effects RendezvousCore::advance(Instant now) {
    job_events_.clear();
    observe_silence(now);
    if (phase_ != Phase::closed) {
        const std::vector<std::string> released = failures_.expire(now);
        note_released(now, released);
        place_named(now, released);
        if (now >= back_off_until_) {
            back_off_until_ = Instant::max();
        }
        if (now >= overdue_at_) {
            lose_overdue(now);
        }
        if (now >= give_up_at_) {
            give_up_at_ = first_gives_up_at();  // The node that was to give up may be gone.
        }
        if (round_.inquiry && now >= round_.inquiry->deadline) {
            overdue_inquiry(now);
        }
        if (now >= tell_finish_at()) {
            tell_finish(now);
        }
        if (round_.trains_since && now >= after(*round_.trains_since, policy_.heartbeat_timeout)) {
            const Instant since = *std::exchange(round_.trains_since, std::nullopt);
            begin_training(now, ledger_.running(since, budget_.step()));
            begin_planned_incident(now);
        }
    }
    transit(now, now);
    reconcile(now);
    return std::exchange(effects_, {});
}

Instant RendezvousCore::next_deadline() const {
    Instant next = detector_.next_deadline();
    if (phase_ == Phase::closed) {
        return next;
    }
    next = std::min({next, back_off_until_, overdue_at_, grow_at(), link_deadline(),
                     failures_.next_deadline(), tell_finish_at(), finish_deadline()});
    if (phase_ == Phase::forming) {
        if (can_form(Instant::max())) {
            next = std::min(next, last_call_until_);
        }
        next = nobody_came(Instant::max()) ? std::min(next, give_up_at_) : next;
    }
    if (phase_ == Phase::changing) {
        next = std::min(next, round_.change->deadline);
    }
    if (round_.inquiry) {
        next = std::min(next, round_.inquiry->deadline);
    }
    if (round_.trains_since) {
        next = std::min(next, after(*round_.trains_since, policy_.heartbeat_timeout));
    }
    return next;
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
    const NodeReport& report = reported->report;
    if (round_.inquiry || node.report.hang || round_.unconfirmed.contains(reported->node)) {
        return false;
    }
    NodeReport expected = node.report;
    expected.step = report.step;
    if (node.report.state == NodeState::running && report.held_step >= node.report.held_step) {
        expected.held_step = report.held_step;
    }
    expected.at_work = std::min(node.report.at_work, report.at_work);  // It decreases with time.
    expected.ended_ago = Duration::zero();  // An end that the node saw while it was away is news.
    if (expected != report || expected.step < node.report.step) {
        return false;
    }
    // The first step of a round is news.
    const bool in_it = is_member(node) && report.round == round_.id;
    if (in_it && (!round_.has_committed || (ledger_.awaits_training() && !round_.trains_since)) &&
        (report.held_step != node.report.held_step || report.step != node.report.step)) {
        return false;
    }
    return !needs_telling(desired({}, reported->node, node), node);
}

// ---- The places of nodes.

bool RendezvousCore::leaves_with_change(const NodeId& id) const {
    return round_.change &&
           (round_.change->kind == Change::Kind::job_drain || round_.change->leavers.contains(id));
}

bool RendezvousCore::leaves_unawaited(const NodeId& id) const {
    return round_.change && round_.change->boundary == Change::Boundary::seen_by_stayer &&
           round_.change->leavers.contains(id);
}

bool RendezvousCore::may_be_saving(const NodeId& id) const {
    return leaves_with_change(id) && round_.change->boundary != Change::Boundary::ahead;
}

// Between two rounds there is no step boundary to save state at. A node that holds state takes part
// in the next round, and leaves from there. If no round can form, it saves the state that it holds.
bool RendezvousCore::leaves_later(const NodeId& id, const Node& node) const {
    return phase_ == Phase::forming && may_keep_state(node.report) &&
           node.report.round != RoundId::none && nodes_.size() >= policy_.nodes_min &&
           !leaves_unawaited(id) && !(round_.stopped_for_change() && leaves_with_change(id));
}

Place RendezvousCore::place_of(const NodeId& id, const Node& node) const {
    const NodeReport& report = node.report;
    const bool has_workers = !has_no_workers(report);
    if (is_member(node)) {
        if (report.round < round_.id || has_workers) {
            return Place::working;
        }
        const bool finished = report.round == round_.id && report.state == NodeState::finished;
        return finished ? Place::finished : Place::out;
    }
    if (phase_ == Phase::closed) {
        return Place::away;
    }
    if (node.wish && !leaves_later(id, node)) {
        return Place::leaving;
    }
    if (failures_.is_quarantined(node.offer.name)) {
        return Place::quarantined;
    }
    if (has_workers || detector_.suspects(id)) {
        return was_member(node) || report.held_step > 0 ? Place::outstanding : Place::away;
    }
    return Place::ready;
}

void RendezvousCore::place(Instant now, const NodeId& id, Node& node) {
    const Place place = place_of(id, node);
    const bool is_new_place = std::exchange(node.place, place) != place;
    if (place != Place::ready) {
        if (is_new_place) {
            prestarts_.remove(id);
        }
    } else if (node.report.elastic) {
        prestarts_.set_warm(id);
    }
    if (place == Place::outstanding && !has_no_workers(node.report)) {
        node.stray_since = std::min(node.stray_since, now);
        overdue_at_ = std::min(overdue_at_, out_by(id, node));
    } else {
        node.stray_since = Instant::max();
    }
    places_.put(id, place, !node.wish && !failures_.is_kept_out(node.offer.name));
    if (is_member(node)) {
        round_.note_member(id, place == Place::working && node.report.state == NodeState::running,
                           detector_.suspects(id));
    }
}

void RendezvousCore::place_all(Instant now) {
    for (auto& [id, node] : nodes_) {
        place(now, id, node);
    }
}

void RendezvousCore::place_named(Instant now, const std::vector<std::string>& names) {
    if (names.empty()) {
        return;
    }
    for (auto& [id, node] : nodes_) {
        if (std::find(names.begin(), names.end(), node.offer.name) != names.end()) {
            place(now, id, node);
        }
    }
}

void RendezvousCore::place_leavers(Instant now) {
    if (phase_ != Phase::forming || places_.not_staying().empty()) {
        return;
    }
    const std::set<NodeId> leavers = places_.not_staying();
    for (const NodeId& id : leavers) {
        place(now, id, nodes_.at(id));
        if (nodes_.at(id).place == Place::leaving) {
            concern(id);
        }
    }
}

Instant RendezvousCore::out_by(const NodeId& id, const Node& node) const {
    if (detector_.suspects(id)) {
        return detector_.lost_at(id);
    }
    Instant since = node.stray_since;
    if (is_member(node)) {
        since = phase_ == Phase::ending && !leaves_unawaited(id)
                    ? round_.ended_at.value_or(Instant::max())
                    : Instant::max();
    }
    if (since == Instant::max()) {
        return since;
    }
    const Instant usual = after(after(since, policy_.shutdown_timeout), kStopMargin);
    const Instant user = node.in_user_code_until;
    return user == Instant::min() ? usual : std::max(usual, after(user, kStopMargin));
}

}  // namespace regroup::rendezvous
