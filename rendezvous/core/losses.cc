// SPDX-License-Identifier: Apache-2.0
//
// How a RendezvousCore records that nodes are gone: they left, fell silent, or are stuck.
#include <algorithm>
#include <utility>

#include "rendezvous/core/observe.h"

namespace regroup::rendezvous::core {

namespace {

// All workers reach a step boundary together. A member that has not reported it this long after
// another one left there will not reach it by itself.
constexpr Duration kBoundaryMargin = std::chrono::seconds(1);
// A small limit is enough: most nodes that were lost while they were to leave never come back.
constexpr std::size_t kWishesKept = 64;

void observe_loss(Job& job, Instant now, const NodeId& id, const Node& node, const Departure& how,
                  Instant sign) {
    Round& round = job.round;
    const auto named = Evidence::NodeGone{node.offer.name, how, false};
    if (was_member(job, node) && how.is_loss() && round.evidence.has_lost_nodes()) {
        round.evidence.add({sign, named});
        round.judgement.cause = round.cause_of_end();
        job.ledger.blame(round.judgement.cause);
    }
    if (!is_member(job, node)) {
        return;
    }
    if (node.place == Place::finished) {
        // A killed node may come back. Another one is gone even if its Leave message was lost.
        if (seat_of(job, node).dismissed && how.kind != Departure::Kind::killed) {
            round.finish.gone.insert(node.offer.name);
        }
    } else if (node.place == Place::out) {
        if (job.phase == Phase::ending && how.is_loss() && round.evidence.has_lost_nodes()) {
            round.evidence.add({sign, named});
        }
    } else if (leaves_unawaited(job, id)) {
        round.change->leaver_gone = true;
    } else if (how.kind == Departure::Kind::left && leaves_with_change(job, id) &&
               (job.phase == Phase::changing || may_be_saving(job, id))) {
        // The others are at the same boundary, or will not reach it: if the node left before the
        // boundary, the failures of its peers follow from that.
        Change& change = *round.change;
        change.leaver_gone = true;
        change.boundary = std::max(change.boundary, Change::Boundary::seen_by_leaver);
        if (change.kind == Change::Kind::leave) {
            change.deadline = std::min(change.deadline, after(now, kBoundaryMargin));
        }
    } else {
        round.evidence.add({sign, Evidence::NodeGone{node.offer.name, how, true}});
        if (job.phase == Phase::ending) {
            job.ledger.seen_at(sign);
            job.ledger.mark_stop_unplanned(sign);
        }
    }
}

}  // namespace

void lose(Job& job, Instant now, const NodeId& id, const Departure& how, Instant sign) {
    const auto found = job.nodes.find(id);
    if (found == job.nodes.end()) {
        return;
    }
    const Node& node = found->second;
    if (how.is_charged() && node.wish && node.wish->said.empty()) {
        // An operator's request still holds if the node comes back with the same agent.
        job.kept_wishes.emplace_back(id, *node.wish);
        if (job.kept_wishes.size() > kWishesKept) {
            job.kept_wishes.pop_front();
        }
    }
    if (job.phase != Phase::closed) {
        note(job, now, how.is_loss() ? JobEvent::Kind::lost : JobEvent::Kind::left, node).detail =
            how;
    }
    observe_loss(job, now, id, node, how, sign);
    if (is_member(job, node) && !node.report.elastic) {
        --job.round.non_elastic_members;
    }
    if (is_of_round(job, node)) {
        job.round.remove(id, node.group_rank);
    }
    job.offers.remove(id, node.offer);
    job.detector.forget(node.slot);
    job.prestarts.remove(id);
    job.places.remove(id, node.place, node.stays);
    job.nodes_bytes -= node.bytes;
    job.nodes.erase(found);
    place_leavers(job, now);
}

void observe_silence(Job& job, Instant now) {
    auto silent = job.detector.lost(now);
    std::ranges::sort(silent, [&](const auto& a, const auto& b) {
        const Instant a_lost_at = job.detector.lost_at(a.first);
        const Instant b_lost_at = job.detector.lost_at(b.first);
        return a_lost_at != b_lost_at ? a_lost_at < b_lost_at
                                      : job.nodes.in(a.first)->first < job.nodes.in(b.first)->first;
    });
    for (const auto& [slot, how] : silent) {
        // Nodes lost at the same moment must not form a round with each other.
        job.detector.suspect(slot, now);
        auto& [id, node] = *job.nodes.in(slot);
        place(job, now, id, node);
    }
    for (const auto& [slot, how] : silent) {
        const NodeId id = job.nodes.in(slot)->first;
        lose(job, now, id, how, job.detector.first_sign(slot));
    }
}

void lose_overdue(Job& job, Instant now) {
    job.overdue_at = Instant::max();
    std::vector<NodeId> overdue;
    for (const Place place : {Place::working, Place::outstanding}) {
        for (const auto& [id, node] : NodesIn(job, place)) {
            const Instant until = out_by(job, id, node);
            if (until <= now) {
                overdue.push_back(id);
            } else {
                job.overdue_at = std::min(job.overdue_at, until);
            }
        }
    }
    for (const NodeId& id : overdue) {
        lose(job, now, id, {Departure::Kind::stuck}, now);
    }
}

}  // namespace regroup::rendezvous::core
