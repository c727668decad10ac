// SPDX-License-Identifier: Apache-2.0
//
// How a RendezvousCore derives the order for each node, and sends it.
#include <algorithm>

#include "rendezvous/core/node_state.h"
#include "rendezvous/core/rendezvous_core.h"

namespace regroup::rendezvous {

// docs/design.md shows this as a table.
FromDaemon RendezvousCore::desired(Instant now, const NodeId& id, const Node& node) const {
    if (phase_ == Phase::closed) {
        return Closed{*verdict_, runs_other_command(node.offer)};
    }
    if (is_member(node)) {
        return desired_of_member(now, id, node);
    }
    if (node.place == Place::leaving) {
        return desired_of_leaver(node);
    }
    if (node.report.state == NodeState::running) {
        return Stop{node.report.round, Cause::Over{node.report.round}};
    }
    if (node.report.state == NodeState::stopping) {
        return Alive{round_.id};
    }
    return waiting(now, id, node);
}

FromDaemon RendezvousCore::desired_of_member(Instant now, const NodeId& id,
                                             const Node& node) const {
    const NodeReport& report = node.report;
    if (report.round < round_.id && phase_ != Phase::ending) {
        return Assign{round_.members.at(id)};
    }
    if (phase_ == Phase::training && round_.dismissed.contains(id)) {
        return Dismissed{round_.id};
    }
    const auto alive = [&] {
        return Alive{round_.id, round_.finish_told ? partial_finish(now) : PartialFinish()};
    };
    if (node.place != Place::working) {
        return alive();
    }
    if (phase_ == Phase::ending) {
        const bool has_heard = report.round >= round_.id && report.state != NodeState::running;
        if (has_heard) {
            return Alive{round_.id};
        }
        return may_be_saving(id)
                   ? FromDaemon(Prepare{round_.id, true, round_.change->cause, true})
                   : FromDaemon(Stop{std::max(round_.id, report.round), round_.cause_of_end()});
    }
    if (const std::optional<Inquiry>& inquiry = round_.inquiry) {
        if (inquiry->culprit && inquiry->culprit_node == id) {
            return EndWorker{round_.id, inquiry->culprit->rank, *inquiry->culprit,
                             !inquiry->culprit->proven()};
        }
        if (!inquiry->culprit && inquiry->unanswered.contains(id)) {
            return SaveStacks{round_.id, inquiry->alarm, inquiry->hang.text};
        }
    }
    if (phase_ == Phase::changing && report.state == NodeState::running) {
        const bool leaves = leaves_with_change(id);
        return Prepare{round_.id, leaves, leaves ? why_leaving(node) : round_.change->cause,
                       leaves};
    }
    return alive();
}

FromDaemon RendezvousCore::desired_of_leaver(const Node& node) const {
    const NodeReport& report = node.report;
    if (report.state == NodeState::stopping) {
        return Alive{round_.id};
    }
    if (report.state == NodeState::running && !report.elastic) {
        return Stop{report.round, Cause::Over{report.round}};  // It has no step boundaries.
    }
    Prepare word{report.round, true, why_leaving(node)};
    word.if_running = report.state == NodeState::running;
    word.stale = is_stale(node);
    return word;
}

Cause RendezvousCore::why_leaving(const Node& node) const {
    if (round_.change && round_.change->kind == Change::Kind::job_drain) {
        return round_.change->cause;
    }
    return Cause::Leaving{node.offer.name, node.wish.value_or(LeaveWish{})};
}

// The others hold a later state, or have continued without this node: its state must not be saved.
bool RendezvousCore::is_stale(const Node& node) const {
    const NodeReport& report = node.report;
    const bool left_behind = report.state == NodeState::stopped && report.round != RoundId::none &&
                             in_round() && report.round < round_.id;
    return left_behind && (round_.has_committed || report.held_step < round_.held_before);
}

Waiting RendezvousCore::waiting(Instant now, const NodeId& id, const Node& node) const {
    Waiting word;
    word.nodes_min = policy_.nodes_min;
    word.nodes_max = policy_.nodes_max;
    for (const auto& [other, entry] : nodes_) {
        if (word.joined.size() == Situation::kNamesMax) {
            break;
        }
        if (entry.place != Place::quarantined) {
            word.joined.push_back(entry.offer.name);
        }
    }
    word.detail = situation(now);
    word.standby = phase_ == Phase::training && !may_grow();
    word.other_command = runs_other_command(node.offer);
    word.prestart = prestarts_.contains(id);
    if (node.place == Place::quarantined) {
        const auto& entry = failures_.quarantined().at(node.offer.name);
        word.standby = true;
        word.detail.kind = Situation::Kind::quarantined;
        word.detail.quarantined = {
            {node.offer.name, entry.why, std::max(Duration::zero(), entry.until - now)}};
    }
    return word;
}

bool RendezvousCore::needs_telling(const FromDaemon& word, const Node& node) {
    if (const auto* waiting = std::get_if<Waiting>(&word)) {
        return waiting->prestart && !node.report.elastic;
    }
    return !std::holds_alternative<Alive>(word);
}

void RendezvousCore::concern_members() {
    for (const auto& [id, assignment] : round_.members) {
        concern(id);
    }
}

// During an elastic round, waiting nodes start their workers ahead: as many as fit into the round,
// and `standbys_max` more.
void RendezvousCore::start_prestarts(Instant now) {
    if (phase_ != Phase::training || !round_.is_elastic()) {
        return;
    }
    const std::set<NodeId>& ready = places_.in(Place::ready);
    const std::size_t places = policy_.nodes_max - round_.members.size() + policy_.standbys_max;
    if (prestarts_.size() >= std::min(places, ready.size())) {
        return;
    }
    for (auto id = ready.begin(); id != ready.end() && prestarts_.size() < places; ++id) {
        if (!prestarts_.contains(*id)) {
            prestarts_.add(*id, now);
            if (nodes_.at(*id).report.elastic) {
                prestarts_.set_warm(*id);
            }
            concern(*id);
        }
    }
}

void RendezvousCore::reconcile(Instant now) {
    start_prestarts(now);
    for (const NodeId& id : concerned_) {
        if (id == speaker_) {
            continue;
        }
        const Node& node = nodes_.at(id);
        FromDaemon word = desired(now, id, node);
        if (needs_telling(word, node)) {
            effects_.push_back({id, std::move(word)});
        }
    }
    concerned_.clear();
    if (speaker_) {
        // Every message is answered, so that the node knows that the daemon is alive.
        if (const auto speaker = nodes_.find(*speaker_); speaker != nodes_.end()) {
            effects_.push_back({*speaker_, desired(now, *speaker_, speaker->second)});
        }
        speaker_.reset();
    }
}

}  // namespace regroup::rendezvous
