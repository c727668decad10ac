// SPDX-License-Identifier: Apache-2.0
//
// How a RendezvousCore forms a round: when, with which nodes, and when it gives up.
#include <algorithm>
#include <utility>

#include "rendezvous/core/rendezvous_core.h"

namespace regroup::rendezvous {

void RendezvousCore::update_last_call(Instant now) {
    if (phase_ != Phase::forming) {
        return;
    }
    const bool enough = places_.count(Place::ready) >= policy_.nodes_min;
    const bool awaits = places_.count(Place::outstanding) > 0;
    if (is_backing_off() || (enough && awaits)) {
        ledger_.held();
    } else if (!enough && !awaits && !needs_quarantined(now)) {
        last_call_until_ = Instant::max();  // When one node comes back, others may follow.
    } else if (enough && last_call_until_ == Instant::max()) {
        last_call_until_ =
            policy_.last_call == Duration::zero() ? Instant::min() : after(now, policy_.last_call);
    }
}

// Nodes that have finished and left do not come back; waiting for them would look like a hang.
bool RendezvousCore::too_few_left(Instant /*clock*/) const {
    return !round_.finished_and_gone.empty() && nodes_.size() < policy_.nodes_min;
}

// With the quarantined nodes there would be enough. The daemon decides this because a node that
// gives up by itself could not report the reason.
bool RendezvousCore::nobody_came(Instant clock) const {
    const std::size_t ready = places_.count(Place::ready);
    return clock >= give_up_at_ && give_up_at_ != Instant::max() && !is_backing_off() &&
           places_.count(Place::outstanding) == 0 && ready < policy_.nodes_min &&
           ready + places_.count(Place::quarantined) >= policy_.nodes_min;
}

// Each node waits for its own --join-timeout.
Instant RendezvousCore::first_gives_up_at() const {
    Instant first = Instant::max();
    for (const auto& [id, assignment] : round_.members) {
        first = std::min(first, gives_up_at(nodes_.at(id)));
    }
    return first;
}

Instant RendezvousCore::gives_up_at(const Node& node) {
    return node.offer.join_timeout > Duration::zero() && node.report.state == NodeState::stopped
               ? after(node.out_since, node.offer.join_timeout)
               : Instant::max();
}

bool RendezvousCore::needs_quarantined(Instant /*clock*/) const {
    return places_.count(Place::ready) < policy_.nodes_min &&
           places_.count(Place::outstanding) == 0 && places_.count(Place::quarantined) > 0 &&
           failures_.any_to_release();
}

void RendezvousCore::release_quarantined(Instant now) {
    const std::vector<std::string> released = failures_.release();
    note_released(now, released);
    place_named(now, released);
}

// A round forms only when no node is outstanding: an outstanding node may hold later state, so the
// daemon waits until it is ready or lost.
bool RendezvousCore::can_form(Instant clock) const {
    const std::size_t ready = places_.count(Place::ready);
    if (ready < policy_.nodes_min || is_backing_off() || places_.count(Place::outstanding) > 0) {
        return false;
    }
    return ready >= policy_.nodes_max || last_call_until_ == Instant::min() ||
           clock >= last_call_until_;
}

std::uint64_t RendezvousCore::furthest_ready() const {
    std::uint64_t step = 0;
    for (const NodeId& id : places_.in(Place::ready)) {
        step = std::max(step, nodes_.at(id).report.held_step);
    }
    return step;
}

void RendezvousCore::form(Instant now) {
    const std::set<NodeId>& quarantined = places_.in(Place::quarantined);
    const std::uint64_t furthest = furthest_ready();
    if (std::any_of(quarantined.begin(), quarantined.end(),
                    [&](const NodeId& id) { return nodes_.at(id).report.held_step > furthest; })) {
        release_quarantined(now);  // Only a quarantined node has the state of the latest step.
    }
    // If all nodes will have to leave, a node that wants to leave keeps its place.
    const bool others_stay = places_.staying() >= policy_.nodes_min;
    std::vector<Member> candidates;
    for (const NodeId& id : places_.in(Place::ready)) {
        const Node& node = nodes_.at(id);
        candidates.push_back({id, node.offer, node.report.store_port, node.report.elastic,
                              node.report.held_step,
                              node.wish && others_stay && !node.offer.hosts_rendezvous});
        if (policy_.rank_order == RankOrder::joined) {
            candidates.back().offer.rank_key = std::to_string(node.joined);
        }
    }
    const std::vector<Member> members = ranks_.arrange(std::move(candidates), policy_.nodes_max);
    std::vector<Assignment> assignments = assign_ranks(members);
    Round round;
    round.id = next(std::max(round_.id, round_floor_));
    round.began = now;
    round.cause = round_.id == RoundId::none || !round_.judgement.cause.is_known()
                      ? Cause(Cause::Joined{members.size(), {}})
                      : round_.judgement.cause;
    round.announces_training = is_elastic_;
    round.held_before = furthest_ready();
    round.step_before = budget_.step();
    for (std::size_t i = 0; i < members.size(); ++i) {
        const NodeId& id = members[i].node;
        assignments[i].round = round.id;
        assignments[i].restart_count = budget_.restarts();
        assignments[i].reason = round.cause;
        if (const auto* failed = round.cause.as<Cause::Failed>()) {
            assignments[i].failed_rank = failed->failure->rank;
        }
        round.unconfirmed.insert(id);
        round.roster.emplace_back(id, members[i].offer.name);
        round.by_rank.emplace(assignments[i].first_rank, id);
        round.commands[members[i].offer.role].insert(members[i].offer.command);
        round.non_elastic_members += members[i].warm ? 0 : 1;
        round.members.emplace(id, std::move(assignments[i]));
    }
    reached_.formed(round.held_before);
    ledger_.formed(now, round.id, succession(members));
    first_began_ = first_began_.value_or(now);
    round_ = std::move(round);
    phase_ = Phase::training;
    for (const Member& member : members) {
        nodes_.at(member.node).member_of = round_.id;
    }
    last_call_until_ = give_up_at_ = Instant::max();
    note_assigned(now);
    place_all(now);
    concern_members();
}

Succession RendezvousCore::succession(const std::vector<Member>& members) const {
    std::set<NodeId> former;
    for (const auto& [id, name] : round_.roster) {
        former.insert(id);
    }
    Succession succession;
    succession.nodes = members.size();
    succession.nodes_before = round_.roster.size();
    for (std::size_t slot = 0; slot < members.size(); ++slot) {
        if (former.contains(members[slot].node) ||
            ++succession.arrivals_count > Succession::kArrivalsNamed) {
            continue;
        }
        using Kind = Succession::Arrival::Kind;
        const std::string& name = members[slot].offer.name;
        const bool returns = slot < round_.roster.size() && round_.roster[slot].second == name;
        const bool standby = round_.roster.size() >= policy_.nodes_max;
        succession.arrivals.push_back(
            {returns ? Kind::returned : (standby ? Kind::standby : Kind::joined), name, slot});
    }
    if (round_.judgement.failure && !round_.evidence.has_lost_nodes()) {
        succession.restarted_on = round_.judgement.failure->node;
    }
    return succession;
}

void RendezvousCore::begin_forming(Instant now) {
    phase_ = Phase::forming;
    last_call_until_ = Instant::min();  // Nodes of the last round continue without a last call.
    overdue_at_ = Instant::max();
    round_.inquiry.reset();
    round_.trains_since.reset();
    place_all(now);
    for (const NodeId& id : places_.in(Place::leaving)) {
        concern(id);
    }
    if (round_.judgement.failure && !round_.evidence.has_lost_nodes()) {
        give_up_at_ = first_gives_up_at();
    }
}

}  // namespace regroup::rendezvous
