// SPDX-License-Identifier: Apache-2.0
//
// How a RendezvousCore changes a round with which nothing is wrong: for growth, or because a node
// is to leave.
#include <algorithm>
#include <utility>

#include "rendezvous/core/node_state.h"
#include "rendezvous/core/rendezvous_core.h"
#include "rendezvous/core/wording.h"

namespace regroup::rendezvous {

namespace {

// Most of those that were lost while they were to leave are gone for good.
constexpr std::size_t kDrainsKept = 64;
// Growth waits so long, and no longer, for the workers of nodes that are new.
constexpr Duration kPrestartLimit = std::chrono::seconds(30);

}  // namespace

bool RendezvousCore::means_to_stay(const Node& node) const {
    return !is_leaving(node) && !strikes_.is_firmly_aside(node.offer.name);
}

void RendezvousCore::detain_if_needed(Instant now, const NodeId& id, Node& node) {
    const bool under_way = phase_ == Phase::running || phase_ == Phase::preparing;
    // Also who was lost after the last round and is back with its state.
    const bool was_in_last = members_.contains(id) || survivors_.contains(id) ||
                             (node.report.round == round_ && node.report.held_step > 0);
    const bool takes_part =
        under_way ? awaited_.contains(id) && is_resident()
                  : was_in_last && may_keep_state(node.report) && phase_ != Phase::closed;
    if (!evacuation_.empty() || !takes_part || strikes_.is_aside(node.offer.name)) {
        return;
    }
    std::size_t stay = 0;
    bool state_stays = !under_way && node.report.held_step == 0;
    for (const auto& [other, entry] : nodes_) {
        if (other != id && means_to_stay(entry) && !detector_.suspects(other)) {
            ++stay;
            // At a step boundary all members have the state.
            // While the round stops, what was said last is old; its end decides again.
            const std::uint64_t enough = phase_ == Phase::stopping ? 1 : node.report.held_step;
            state_stays = state_stays ||
                          (under_way ? members_.contains(other) : entry.report.held_step >= enough);
        }
    }
    const bool few = stay < policy_.nodes_min;
    const bool hands_over = !state_stays && stay > 0 && policy_.nodes_max > 1;
    if (!under_way) {
        // Nothing can be saved between two rounds. In the next one all leave, or others have it.
        const bool all_leave = few || node.offer.hosts_rendezvous;
        const bool decided_later = phase_ == Phase::stopping && members_.contains(id);
        const bool needed = all_leave || hands_over || (!decided_later && lags(node));
        node.detained = stay + 1 >= policy_.nodes_min && needed;
    } else if (!few && hands_over && !node.offer.hosts_rendezvous) {
        if (ready_.empty()) {
            pardon(now);
        }
        node.detained = !ready_.empty();
    }
    if (node.detained) {
        detained_.insert(id);
    }
}

std::string RendezvousCore::why_leaving(const Node& node) const {
    if (!evacuation_.empty()) {
        return evacuation_;
    }
    return "node " + node.offer.name +
           (node.drain.empty() ? " leaves: " + node.report.draining : " " + node.drain);
}

std::size_t RendezvousCore::nodes_called(const std::string& name) const {
    return static_cast<std::size_t>(std::count_if(
        nodes_.begin(), nodes_.end(),
        [&](const auto& entry) { return entry.first == name || entry.second.offer.name == name; }));
}

void RendezvousCore::on(Instant now, const DrainRequested& event) {
    if (phase_ == Phase::closed) {
        return;
    }
    std::vector<NodeId> chosen;
    for (auto& [id, node] : nodes_) {
        // An id names one node, a name all launchers of a host.
        if ((id == event.node || node.offer.name == event.node) && !is_leaving(node) &&
            !wants_to_leave(node)) {
            chosen.push_back(id);
            node.drain =
                "is drained by " + event.author + (event.reason.empty() ? "" : ": " + event.reason);
        }
    }
    for (const NodeId& id : chosen) {
        detain_if_needed(now, id, nodes_.at(id));
        update_ready(now, id);
    }
    for (const NodeId& id : chosen) {
        if (const auto found = nodes_.find(id); found != nodes_.end()) {
            begin_leaving(now, id, found->second);
            if (!found->second.detained) {
                tell_to_leave(id, found->second);
            }
        }
    }
    try_form(now);
}

void RendezvousCore::keep_drain(const NodeId& id, const Node& node) {
    if (!node.drain.empty()) {
        kept_drains_.emplace_back(id, node.drain);
        if (kept_drains_.size() > kDrainsKept) {
            kept_drains_.pop_front();
        }
    }
}

bool RendezvousCore::resume_drain(const NodeId& id, Node& node) {
    const auto found = std::find_if(kept_drains_.begin(), kept_drains_.end(),
                                    [&](const auto& kept) { return kept.first == id; });
    if (found == kept_drains_.end()) {
        return false;
    }
    node.drain = std::move(found->second);
    kept_drains_.erase(found);
    return true;
}

std::string RendezvousCore::why_all_leave(const NodeId& id, const Node& node) const {
    const bool under_way = phase_ == Phase::running || phase_ == Phase::preparing;
    if (!under_way || !is_resident()) {
        return "";  // There is no step boundary to wait for.
    }
    // Those under suspicion are about to be back: after a pause of this daemon that is everybody,
    // and a job is not to end for that.
    const auto stay = std::count_if(nodes_.begin(), nodes_.end(),
                                    [&](const auto& entry) { return means_to_stay(entry.second); });
    if (awaited_.contains(id) && static_cast<std::size_t>(stay) < policy_.nodes_min) {
        return stay == 0 ? "no other node stays"
                         : counted(static_cast<std::size_t>(stay), "node") +
                               " would be left of at least " + std::to_string(policy_.nodes_min);
    }
    return node.offer.hosts_rendezvous ? "the rendezvous goes with it" : "";
}

void RendezvousCore::begin_leaving(Instant now, const NodeId& id, const Node& node) {
    const std::string reason = why_leaving(node);
    if (node.detained) {
        if (phase_ == Phase::running) {
            begin_change(now, reason + ", once one that waits has its state");
        }
        return;
    }
    if (evacuation_.empty()) {
        if (const std::string why = why_all_leave(id, node); !why.empty()) {
            evacuated_by_ = "node " + node.offer.name;
            evacuation_ = reason + "; " + why + ", so all save their state and leave";
            ready_.clear();
            prestarted_.clear();
        }
    }
    if (phase_ == Phase::running && (awaited_.contains(id) || !evacuation_.empty())) {
        begin_change(now, evacuation_.empty() ? reason : evacuation_);
    } else if (phase_ == Phase::preparing && (awaited_.contains(id) || !evacuation_.empty())) {
        if (!evacuation_.empty()) {
            cause_ = evacuation_;
        }
        for (const NodeId& other : awaited_) {
            if (other == id || !evacuation_.empty()) {
                tell_to_prepare(other, nodes_.at(other));
            }
        }
    }
    for (const auto& [other, entry] : nodes_) {
        if (other != id && !evacuation_.empty()) {
            tell_to_leave(other, entry);
        }
    }
    const bool ending = phase_ == Phase::preparing || phase_ == Phase::stopping;
    if (ending && parked_ && evacuation_.empty() && awaited_.erase(id) > 0) {
        end_if_all_out(now);
    }
}

void RendezvousCore::begin_change(Instant now, const std::string& reason) {
    if (is_resident()) {
        begin_preparing(now, reason);
    } else {
        begin_stopping(now, reason, true);
    }
}

void RendezvousCore::begin_preparing(Instant now, const std::string& reason) {
    ENSURE(phase_ == Phase::running);
    phase_ = Phase::preparing;
    cause_ = reason;
    deadline_ = after(now, policy_.prepare_timeout);
    round_ended_ = now;
    begin_planned_incident(now);
    for (const NodeId& id : awaited_) {
        tell_to_prepare(id, nodes_.at(id));
    }
}

// The way to this round ends with its first step, which may lie ahead of the boundary.
void RendezvousCore::begin_planned_incident(Instant now) {
    if (phase_ == Phase::preparing && !ledger_.awaits_training()) {
        ledger_.begin(round_, true, now, now);
    }
}

void RendezvousCore::tell_to_prepare(const NodeId& id, const Node& node) {
    const bool leave = is_leaving(node);
    effects_.push_back({id, Prepare{round_, leave, leave ? why_leaving(node) : cause_, leave}});
}

void RendezvousCore::tell_to_leave(const NodeId& id, const Node& node) {
    // A member that has finished is needed until the round is over: it may serve the store.
    if (members_.contains(id) || node.report.state == NodeState::stopping) {
        return;
    }
    if (node.report.state == NodeState::running && !node.report.resident) {
        tell_of_the_end(id, node);  // It comes to no step boundary, and is to leave once it is out.
    } else {
        Prepare word{node.report.round, true, why_leaving(node)};
        word.if_running = node.report.state == NodeState::running;
        word.stale = is_stale(id, node);
        effects_.push_back({id, std::move(word)});
    }
}

bool RendezvousCore::is_stale(const NodeId& id, const Node& node) const {
    const NodeReport& report = node.report;
    if (report.state != NodeState::stopped || report.round == RoundId::none ||
        survivors_.contains(id)) {
        return false;
    }
    // Of those who were in the last round together everybody counts, until there is another one.
    const bool is_older = report.round < round_;
    // They may have begun anew, and be behind the steps that the job had reached before.
    const bool others_train = is_older && !members_.empty() &&
                              (budget_.step() > step_at_form_ || !ledger_.awaits_training());
    // Where only some have the furthest step of their node, and the job has it as well.
    const bool is_partial =
        report.uneven && std::any_of(members_.begin(), members_.end(), [&](const auto& member) {
            return nodes_.at(member.first).report.held_step >= report.held_step;
        });
    return others_train || ((is_older || !members_.empty()) && (is_behind(node) || is_partial));
}

void RendezvousCore::tell_of_the_end(const NodeId& id, const Node& node) {
    const RoundId round = node.report.round;
    effects_.push_back({id, Stop{round, "round " + std::to_string(number(round)) + " is over"}});
}

void RendezvousCore::absorb_preparing(Instant now, const NodeId& id, const Node& node) {
    const NodeReport& report = node.report;
    if (report.round > round_) {
        absorb_running(now, id, node);
    } else if (report.failure) {
        failure_ = report.failure;
        begin_stopping(now, describe(*report.failure), false, sign_of(*report.failure));
    } else if (report.state == NodeState::stopped && !boundary_ &&
               (report.store_spent || !report.broken_links.empty())) {
        stop_given_up(now, node);  // Its workers have parked short of the boundary.
    } else if (has_no_workers(report)) {
        someone_finished_ = someone_finished_ || report.state == NodeState::finished;
        boundary_ = true;
        ledger_.at_boundary(std::min(now, node.ended_at));
        count_out(id, node);
        if (!parked_ && report.state == NodeState::stopped && !is_leaving(node)) {
            parked_ = true;
            // The others go on while these save their state.
            std::erase_if(awaited_,
                          [&](const NodeId& other) { return is_leaving(nodes_.at(other)); });
        }
        end_if_all_out(now);
    } else if (report.state == NodeState::running) {
        consider_links(now, node);
        if (phase_ == Phase::preparing) {
            tell_to_prepare(id, node);
            consider_hang(now, id, node);
        }
    }
}

// ---- Growth, and the nodes that wait.

bool RendezvousCore::may_grow() const {
    // A round in which somebody has finished is about to end: it is not worth a restart.
    return phase_ == Phase::running && members_.size() < policy_.nodes_max && !ready_.empty() &&
           !someone_finished_;
}

Instant RendezvousCore::grow_at() const {
    // A round that has yet to train has no step boundary so far.
    if (!may_grow() || (is_resident() && ledger_.awaits_training())) {
        return Instant::max();
    }
    Instant at = after(round_began_, policy_.grow_after);
    if (is_resident()) {
        // The round trains while the newcomers' workers start.
        for (const auto& [id, since] : prestarted_) {
            if (!nodes_.at(id).report.resident) {
                at = std::max(at, after(since, kPrestartLimit));
            }
        }
    }
    return at;
}

void RendezvousCore::offer_prestart(Instant now) {
    if (phase_ != Phase::running || !is_resident() || ready_.empty()) {
        return;
    }
    const std::size_t places = policy_.nodes_max - members_.size() + policy_.spares_max;
    for (auto id = ready_.begin(); id != ready_.end() && prestarted_.size() < places; ++id) {
        if (prestarted_.emplace(*id, now).second) {
            Waiting word = notice(explain(now));
            word.prestart = true;
            effects_.push_back({*id, std::move(word)});
            newcomers_.erase(*id);
        }
    }
}

}  // namespace regroup::rendezvous
