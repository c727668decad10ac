// SPDX-License-Identifier: Apache-2.0
//
// How a RendezvousCore records that nodes are gone: they left, fell silent, or are stuck.
#include <algorithm>
#include <utility>

#include "rendezvous/core/rendezvous_core.h"

namespace regroup::rendezvous {

namespace {

// All workers reach a step boundary together. A member that has not reported it this long after
// another one left there will not reach it by itself.
constexpr Duration kBoundaryMargin = std::chrono::seconds(1);
// A small limit is enough: most nodes that were lost while they were to leave never come back.
constexpr std::size_t kWishesKept = 64;

}  // namespace

void RendezvousCore::lose(Instant now, const NodeId& id, const Departure& how, Instant sign) {
    const auto found = nodes_.find(id);
    if (found == nodes_.end()) {
        return;
    }
    const Node& node = found->second;
    if (how.is_charged() && node.wish && node.wish->said.empty()) {
        // An operator's request still holds if the node comes back with the same agent.
        kept_wishes_.emplace_back(id, *node.wish);
        if (kept_wishes_.size() > kWishesKept) {
            kept_wishes_.pop_front();
        }
    }
    if (phase_ != Phase::closed) {
        note(now, how.is_loss() ? JobEvent::Kind::lost : JobEvent::Kind::left, id, node).detail =
            how;
    }
    observe_loss(now, id, node, how, sign);
    if (is_member(node) && !node.report.elastic) {
        --round_.non_elastic_members;
    }
    round_.remove(id);
    offers_.remove(id, node.offer);
    detector_.forget(id);
    prestarts_.remove(id);
    places_.remove(id);
    concerned_.erase(id);
    nodes_bytes_ -= node.bytes;
    nodes_.erase(found);
    place_leavers(now);
}

void RendezvousCore::observe_loss(Instant now, const NodeId& id, const Node& node,
                                  const Departure& how, Instant sign) {
    const auto named = Evidence::NodeGone{node.offer.name, how, false};
    if (was_member(node) && how.is_loss() && round_.evidence.has_lost_nodes()) {
        round_.evidence.add({sign, named});
        round_.judgement.cause = round_.cause_of_end();
        ledger_.blame(round_.judgement.cause);
    }
    if (!is_member(node)) {
        return;
    }
    if (node.place == Place::finished) {
        // A killed node may come back. Another one is gone even if its Leave message was lost.
        if (round_.dismissed.contains(id) && how.kind != Departure::Kind::killed) {
            round_.finished_and_gone.insert(node.offer.name);
        }
    } else if (node.place == Place::out) {
        if (phase_ == Phase::ending && how.is_loss() && round_.evidence.has_lost_nodes()) {
            round_.evidence.add({sign, named});
        }
    } else if (leaves_unawaited(id)) {
        round_.change->leaver_gone = true;
    } else if (how.kind == Departure::Kind::left && leaves_with_change(id) &&
               (phase_ == Phase::changing || may_be_saving(id))) {
        // The others are at the same boundary, or will not reach it: if the node left before the
        // boundary, the failures of its peers follow from that.
        Change& change = *round_.change;
        change.leaver_gone = true;
        change.boundary = std::max(change.boundary, Change::Boundary::seen_by_leaver);
        if (change.kind == Change::Kind::leave) {
            change.deadline = std::min(change.deadline, after(now, kBoundaryMargin));
        }
    } else {
        round_.evidence.add({sign, Evidence::NodeGone{node.offer.name, how, true}});
        if (phase_ == Phase::ending) {
            ledger_.seen_at(sign);
            ledger_.mark_stop_unplanned(sign);
        }
    }
}

void RendezvousCore::observe_silence(Instant now) {
    struct Silent {
        NodeId id;
        Departure how;
        Instant sign;
    };
    std::vector<Silent> silent;
    for (auto& [id, how] : detector_.lost(now)) {
        silent.push_back({id, std::move(how), detector_.first_sign(id)});
    }
    for (const Silent& node : silent) {
        // Nodes lost at the same moment must not form a round with each other.
        detector_.suspect(node.id, now);
        place(now, node.id, nodes_.at(node.id));
    }
    for (const Silent& node : silent) {
        lose(now, node.id, node.how, node.sign);
    }
}

void RendezvousCore::lose_overdue(Instant now) {
    overdue_at_ = Instant::max();
    std::vector<NodeId> overdue;
    for (const Place place : {Place::working, Place::outstanding}) {
        for (const NodeId& id : places_.in(place)) {
            const Instant until = out_by(id, nodes_.at(id));
            if (until <= now) {
                overdue.push_back(id);
            } else {
                overdue_at_ = std::min(overdue_at_, until);
            }
        }
    }
    for (const NodeId& id : overdue) {
        lose(now, id, {Departure::Kind::stuck}, now);
    }
}

}  // namespace regroup::rendezvous
