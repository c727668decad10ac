// SPDX-License-Identifier: Apache-2.0
//
// How a RendezvousCore forms a round: when, with which nodes, and when it gives up.
#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "rendezvous/core/transitions.h"

namespace regroup::rendezvous::core {

namespace {

std::uint64_t furthest_ready(const Job& job) {
    std::uint64_t step = 0;
    for (const auto& [id, node] : NodesIn(job, Place::ready)) {
        step = std::max(step, node.report.held_step);
    }
    return step;
}

Succession succession(const Job& job, const std::vector<Member>& members) {
    const Round& round = job.round;
    // Mostly only the first nodes of a job, and a few later ones, are looked for among the seats.
    std::set<std::string_view> former;
    const auto was_in_it = [&](const Member& member) {
        if (job.nodes.in(member.slot)->second.member_of == round.id || round.seats.empty()) {
            return !round.seats.empty();
        }
        if (former.empty()) {
            for (const Seat& seat : round.seats) {
                former.insert(seat.node);
            }
        }
        return former.contains(member.node);
    };
    Succession succession;
    succession.nodes = members.size();
    succession.nodes_before = round.seats.size();
    for (std::size_t slot = 0; slot < members.size(); ++slot) {
        if (was_in_it(members[slot]) || ++succession.arrivals_count > Succession::kArrivalsNamed) {
            continue;
        }
        using Kind = Succession::Arrival::Kind;
        const std::string& name = members[slot].offer.name;
        const bool returns = slot < round.seats.size() && round.seats[slot].name == name;
        const bool standby = round.seats.size() >= job.policy.nodes_max;
        succession.arrivals.push_back(
            {returns ? Kind::returned : (standby ? Kind::standby : Kind::joined), name, slot});
    }
    if (round.judgement.failure && !round.evidence.has_lost_nodes()) {
        succession.restarted_on = round.judgement.failure->node;
    }
    return succession;
}

void add_assigned(Job& job, Instant now) {
    JobEvent& event = note(job, now, JobEvent::Kind::assigned);
    event.cause = job.round.cause;
    JobEvent::Members members;
    members.reserve(job.round.seats.size());
    for (const Seat& seat : job.round.seats) {
        members.push_back({seat.name, seat.assignment.first_rank, seat.workers});
    }
    event.detail = std::move(members);
}

}  // namespace

void update_last_call(Job& job, Instant now) {
    if (job.phase != Phase::forming) {
        return;
    }
    const bool enough = job.places.count(Place::ready) >= job.policy.nodes_min;
    const bool awaits = job.places.count(Place::outstanding) > 0;
    if (job.formation.is_backing_off() || (enough && awaits)) {
        job.ledger.held();
    } else if (!enough && !awaits && !needs_quarantined(job, now)) {
        job.formation.last_call_until =
            Instant::max();  // When one node comes back, others may follow.
    } else if (enough && job.formation.last_call_until == Instant::max()) {
        job.formation.last_call_until = job.policy.last_call == Duration::zero()
                                            ? Instant::min()
                                            : after(now, job.policy.last_call);
    }
}

// Nodes that have finished and left do not come back; waiting for them would look like a hang.
bool too_few_left(const Job& job, Instant /*clock*/) {
    return !job.round.finish.gone.empty() && job.nodes.size() < job.policy.nodes_min;
}

// With the quarantined nodes there would be enough. The daemon decides this because a node that
// gives up by itself could not report the reason.
bool nobody_came(const Job& job, Instant clock) {
    const std::size_t ready = job.places.count(Place::ready);
    return clock >= job.formation.give_up_at && job.formation.give_up_at != Instant::max() &&
           !job.formation.is_backing_off() && job.places.count(Place::outstanding) == 0 &&
           ready < job.policy.nodes_min &&
           ready + job.places.count(Place::quarantined) >= job.policy.nodes_min;
}

// Each node waits for its own --join-timeout.
Instant first_gives_up_at(const Job& job) {
    Instant first = Instant::max();
    for (const auto& [id, node] : members_of(job)) {
        first = std::min(first, gives_up_at(node));
    }
    return first;
}

Instant gives_up_at(const Node& node) {
    return node.offer.join_timeout > Duration::zero() && node.report.state == NodeState::stopped
               ? after(node.out_since, node.offer.join_timeout)
               : Instant::max();
}

bool needs_quarantined(const Job& job, Instant /*clock*/) {
    return job.places.count(Place::ready) < job.policy.nodes_min &&
           job.places.count(Place::outstanding) == 0 && job.places.count(Place::quarantined) > 0 &&
           job.failures.any_to_release();
}

void release_quarantined(Job& job, Instant now) {
    readmit(job, now, job.failures.release());
}

// A round forms only when no node is outstanding: an outstanding node may hold later state, so the
// daemon waits until it is ready or lost.
bool can_form(const Job& job, Instant clock) {
    const std::size_t ready = job.places.count(Place::ready);
    if (ready < job.policy.nodes_min || job.formation.is_backing_off() ||
        job.places.count(Place::outstanding) > 0) {
        return false;
    }
    return ready >= job.policy.nodes_max || job.formation.last_call_until == Instant::min() ||
           clock >= job.formation.last_call_until;
}

void form(Job& job, Instant now) {
    const std::uint64_t furthest = furthest_ready(job);
    bool quarantined_is_further = false;
    for (const auto& [id, node] : NodesIn(job, Place::quarantined)) {
        quarantined_is_further = quarantined_is_further || node.report.held_step > furthest;
    }
    if (quarantined_is_further) {
        release_quarantined(job, now);  // Only a quarantined node has the state of the latest step.
    }
    // If all nodes will have to leave, a node that wants to leave keeps its place.
    const bool others_stay = job.places.staying() >= job.policy.nodes_min;
    std::vector<Member> candidates;
    candidates.reserve(job.places.count(Place::ready));
    for (const auto& [id, node] : NodesIn(job, Place::ready)) {
        candidates.push_back({id, node.offer, node.report.store_port, node.report.elastic,
                              node.report.held_step,
                              node.wish && others_stay && !node.offer.hosts_rendezvous, node.slot});
        if (job.policy.rank_order == RankOrder::joined) {
            candidates.back().offer.rank_key = std::to_string(node.joined);
        }
    }
    const std::vector<Member> members = job.ranks.arrange(candidates, job.policy.nodes_max);
    std::vector<Assignment> assignments = assign_ranks(members);
    Round round;
    round.id = next(std::max(job.round.id, job.round_floor));
    round.began = now;
    round.cause = job.round.id == RoundId::none || !job.round.judgement.cause.is_known()
                      ? Cause(Cause::Joined{members.size(), {}})
                      : job.round.judgement.cause;
    round.announces_training = job.is_elastic;
    round.held_before = furthest_ready(job);
    round.step_before = job.budget.step();
    round.members = round.unconfirmed = members.size();
    round.seats.reserve(members.size());
    for (std::size_t i = 0; i < members.size(); ++i) {
        assignments[i].round = round.id;
        assignments[i].restart_count = job.budget.restarts();
        assignments[i].reason = round.cause;
        if (const auto* failed = round.cause.as<Cause::Failed>()) {
            assignments[i].failed_rank = failed->failure->rank;
        }
        round.commands[members[i].offer.role].insert(members[i].offer.command);
        round.non_elastic_members += members[i].warm ? 0 : 1;
        round.seats.push_back({members[i].node, members[i].offer.name, members[i].offer.workers,
                               std::move(assignments[i])});
    }
    if (job.round.change) {
        for (const NodeId& id : job.round.change->leavers) {
            if (const auto leaver = job.nodes.find(id); leaver != job.nodes.end()) {
                leaver->second.left_before = round.id;
            }
        }
    }
    job.reached.formed(round.held_before);
    job.ledger.formed(now, round.id, succession(job, members));
    job.first_began = job.first_began.value_or(now);
    job.round = std::move(round);
    job.phase = Phase::training;
    for (std::size_t i = 0; i < members.size(); ++i) {
        Node& node = job.nodes.in(members[i].slot)->second;
        node.member_of = job.round.id;
        node.group_rank = static_cast<std::uint32_t>(i);
    }
    job.formation.last_call_until = job.formation.give_up_at = Instant::max();
    add_assigned(job, now);
    place_all(job, now);
    concern_members(job);
}

void begin_forming(Job& job, Instant now) {
    job.phase = Phase::forming;
    job.formation.last_call_until =
        Instant::min();  // Nodes of the last round continue without a last call.
    job.overdue_at = Instant::max();
    job.round.hang.close();
    job.round.trains_since.reset();
    place_all(job, now);
    for (const auto& [id, node] : NodesIn(job, Place::leaving)) {
        job.outbox.concern(node);
    }
    if (job.round.judgement.failure && !job.round.evidence.has_lost_nodes()) {
        job.formation.give_up_at = first_gives_up_at(job);
    }
}

}  // namespace regroup::rendezvous::core
