// SPDX-License-Identifier: Apache-2.0
//
// How a RendezvousCore derives the order for each node, and sends it.
#include <algorithm>
#include <utility>

#include "rendezvous/core/observe.h"
#include "rendezvous/core/orders.h"
#include "rendezvous/core/transitions.h"

namespace regroup::rendezvous::core {

namespace {

// The others hold a later state, or have continued without this node: its state must not be saved.
// A node that was to leave at the boundary from which they continued saves the state of that
// boundary, even if its workers were there before its agent heard that it leaves.
bool is_stale(const Job& job, const Node& node) {
    const NodeReport& report = node.report;
    const bool left_behind = report.state == NodeState::stopped && report.round != RoundId::none &&
                             in_round(job) && report.round < job.round.id;
    return left_behind && (report.held_step < job.round.held_before ||
                           (job.round.has_committed && node.left_before != job.round.id));
}

// Nothing has failed, so that workers that ask for it may still stop at an agreed step.
bool ends_as_planned(const Round& round) {
    if (round.stopped_for_change()) {
        return true;
    }
    const std::optional<WorkerFailure> failure = round.evidence.judge(*round.end).failure;
    return failure && failure->has_stopped();
}

FromDaemon desired_of_member(const Job& job, Instant now, const NodeId& id, const Node& node) {
    const Round& round = job.round;
    const NodeReport& report = node.report;
    if (report.round < round.id && job.phase != Phase::ending) {
        return Assign{seat_of(job, node).assignment};
    }
    if (job.phase == Phase::training && seat_of(job, node).dismissed) {
        return Dismissed{round.id};
    }
    const auto alive = [&] {
        return Alive{round.id, round.finish.told ? partial_finish(job, now) : PartialFinish()};
    };
    if (node.place != Place::working) {
        return alive();
    }
    if (job.phase == Phase::ending) {
        const bool has_heard = report.round >= round.id && report.state != NodeState::running;
        if (has_heard) {
            return Alive{round.id};
        }
        return may_be_saving(job, id)
                   ? FromDaemon(Prepare{round.id, true, round.change->cause, true})
                   : FromDaemon(Stop{std::max(round.id, report.round), round.cause_of_end(),
                                     ends_as_planned(round)});
    }
    if (std::optional<FromDaemon> order = round.hang.order_for(id, round.id)) {
        return *std::move(order);
    }
    if (job.phase == Phase::changing && report.state == NodeState::running) {
        const bool leaves = leaves_with_change(job, id);
        return Prepare{round.id, leaves, leaves ? why_leaving(job, node) : round.change->cause,
                       leaves};
    }
    return alive();
}

FromDaemon desired_of_leaver(const Job& job, const Node& node) {
    const NodeReport& report = node.report;
    if (report.state == NodeState::stopping) {
        return Alive{job.round.id};
    }
    if (report.state == NodeState::running && !report.elastic) {
        return Stop{report.round, Cause::Over{report.round}};  // It has no step boundaries.
    }
    Prepare word{report.round, true, why_leaving(job, node)};
    word.if_running = report.state == NodeState::running;
    word.stale = is_stale(job, node);
    return word;
}

// During an elastic round, waiting nodes start their workers ahead: as many as fit into the round,
// and `standbys_max` more.
void start_prestarts(Job& job, Instant now) {
    if (job.phase != Phase::training || !job.round.is_elastic()) {
        return;
    }
    const std::size_t places = job.policy.nodes_max - job.round.members + job.policy.standbys_max;
    if (job.prestarts.size() >= std::min(places, job.places.count(Place::ready))) {
        return;
    }
    for (const auto& [id, node] : NodesIn(job, Place::ready)) {
        if (job.prestarts.size() >= places) {
            break;
        }
        if (!job.prestarts.contains(id)) {
            job.prestarts.add(id, now);
            if (node.report.elastic) {
                job.prestarts.set_warm(id);
            }
            job.outbox.concern(node);
        }
    }
}

// The nodes that the step concerns and that are still there, by id, without the speaker.
std::vector<NodeSlot> take_concerned(Job& job) {
    std::vector<NodeSlot> slots = std::exchange(job.outbox.concerned, {});
    std::erase_if(slots, [&](NodeSlot slot) {
        return job.nodes.in(slot) == nullptr || slot == job.outbox.speaker;
    });
    const auto id_of = [&](NodeSlot slot) -> const NodeId& { return job.nodes.in(slot)->first; };
    if (!std::ranges::is_sorted(slots, {}, id_of)) {
        std::ranges::sort(slots, {}, id_of);
    }
    const auto rest = std::ranges::unique(slots);
    slots.erase(rest.begin(), rest.end());
    return slots;
}

}  // namespace

// docs/design.md shows this as a table.
FromDaemon desired(const Job& job, Instant now, const NodeId& id, const Node& node) {
    if (job.phase == Phase::closed) {
        return Closed{*job.verdict, runs_other_command(job, node.offer)};
    }
    if (is_member(job, node)) {
        return desired_of_member(job, now, id, node);
    }
    if (node.place == Place::leaving) {
        return desired_of_leaver(job, node);
    }
    if (node.report.state == NodeState::running) {
        return Stop{node.report.round, Cause::Over{node.report.round}};
    }
    if (node.report.state == NodeState::stopping) {
        return Alive{job.round.id};
    }
    return waiting(job, now, id, node);
}

Waiting waiting(const Job& job, Instant now, const NodeId& id, const Node& node) {
    Waiting word;
    word.nodes_min = job.policy.nodes_min;
    word.nodes_max = job.policy.nodes_max;
    for (const auto& [other, entry] : job.nodes) {
        if (word.joined.size() == Situation::kNamesMax) {
            break;
        }
        if (entry.place != Place::quarantined) {
            word.joined.push_back(entry.offer.name);
        }
    }
    word.detail = situation(job, now);
    word.standby = job.phase == Phase::training && !may_grow(job);
    word.other_command = runs_other_command(job, node.offer);
    word.prestart = job.prestarts.contains(id);
    if (node.place == Place::quarantined) {
        const auto& entry = job.failures.quarantined().at(node.offer.name);
        word.standby = true;
        word.detail.kind = Situation::Kind::quarantined;
        word.detail.quarantined = {
            {node.offer.name, entry.why, std::max(Duration::zero(), entry.until - now)}};
    }
    return word;
}

bool needs_telling(const FromDaemon& word, const Node& node) {
    if (const auto* waiting = std::get_if<Waiting>(&word)) {
        return waiting->prestart && !node.report.elastic;
    }
    return !std::holds_alternative<Alive>(word);
}

void reconcile(Job& job, Instant now) {
    start_prestarts(job, now);
    const std::vector<NodeSlot> concerned = take_concerned(job);
    job.outbox.effects.reserve(job.outbox.effects.size() + concerned.size() + 1);
    for (const NodeSlot slot : concerned) {
        const auto& [id, node] = *job.nodes.in(slot);
        FromDaemon word = desired(job, now, id, node);
        if (needs_telling(word, node)) {
            job.outbox.send(id, std::move(word));
        }
    }
    // Every message is answered, so that the node knows that the daemon is alive.
    const auto speaker = std::exchange(job.outbox.speaker, {});
    if (const Nodes::Entry* entry = speaker ? job.nodes.in(*speaker) : nullptr) {
        job.outbox.send(entry->first, desired(job, now, entry->first, entry->second));
    }
}

}  // namespace regroup::rendezvous::core
