// SPDX-License-Identifier: Apache-2.0
//
// How a RendezvousCore changes a round at a step boundary, to admit nodes or to let nodes leave.
#include <algorithm>
#include <utility>

#include "rendezvous/core/transitions.h"

namespace regroup::rendezvous::core {

namespace {

// The most nodes that the cause of a growth names.
constexpr std::size_t kNamesInCause = 32;
// The longest time that growth waits for the workers of new nodes to start.
constexpr Duration kPrestartLimit = std::chrono::seconds(30);

// A node may leave while its round trains if enough nodes stay and one of them has committed a step
// in this round. If too few stay, or if the daemon ends with the node, all leave.
std::optional<Change> wanted_departures(const Job& job) {
    const Round& round = job.round;
    // New processes have not reported yet whether they are elastic. `announces_training` says that
    // workers of earlier rounds were.
    const bool will_commit = round.is_elastic() || round.announces_training;
    if (job.places.not_staying().empty() || (will_commit && !round.has_committed)) {
        return std::nullopt;
    }
    Change change;
    const Node* first = nullptr;
    const Node* host = nullptr;
    for (const NodeId& id : job.places.not_staying()) {
        const Node& node = job.nodes.at(id);
        if (node.wish && node.place == Place::working) {
            change.leavers.insert(id);
            first = first == nullptr ? &node : first;
        }
        host = node.wish && node.offer.hosts_rendezvous ? &node : host;
    }
    const bool all_leave_with_host = host != nullptr && round.is_elastic();
    if (first == nullptr && !all_leave_with_host) {
        return std::nullopt;
    }
    const Node& node = all_leave_with_host ? *host : *first;
    Cause::Leaving leaving{node.offer.name, *node.wish};
    const std::size_t stay = job.places.staying();
    change.kind = Change::Kind::leave;
    if (round.is_elastic() && (all_leave_with_host || stay < job.policy.nodes_min)) {
        using Why = Cause::JobDrain::Why;
        const Why why = all_leave_with_host ? Why::rendezvous_goes
                        : stay == 0         ? Why::nobody_stays
                                            : Why::too_few_stay;
        change.kind = Change::Kind::job_drain;
        change.author = node.offer.name;
        change.leavers.clear();
        change.cause = Cause::JobDrain{std::move(leaving), why, stay, job.policy.nodes_min};
        return change;
    }
    const bool somebody_has_state =
        !round.is_elastic() || job.places.staying(Place::working) > 0 || job.policy.nodes_max == 1;
    if (!somebody_has_state) {
        // A waiting node is admitted first, and must commit a step.
        if (job.places.count(Place::ready) == 0 && !job.failures.any_to_release()) {
            return std::nullopt;
        }
        change.kind = Change::Kind::regroup;
        change.leavers.clear();
        leaving.hands_over = true;
    }
    change.cause = std::move(leaving);
    return change;
}

}  // namespace

bool may_grow(const Job& job) {
    // A round in which a node has finished will end soon: it is not worth a restart.
    return job.phase == Phase::training && job.round.members < job.policy.nodes_max &&
           job.places.count(Place::ready) > 0 && job.round.finish.members == 0;
}

Instant grow_at(const Job& job) {
    // An elastic round that does not train yet has no step boundary.
    if (!may_grow(job) || (job.round.is_elastic() && job.ledger.awaits_training())) {
        return Instant::max();
    }
    const Instant at = after(job.round.began, job.policy.grow_after);
    const Instant cold = job.prestarts.last_cold();
    // An elastic round trains while the newcomers' workers start.
    return job.round.is_elastic() && cold != Instant::min()
               ? std::max(at, after(cold, kPrestartLimit))
               : at;
}

bool must_change(const Job& job, Instant clock) {
    return clock >= grow_at(job) || wanted_departures(job).has_value();
}

void begin_change(Job& job, Instant now) {
    Round& round = job.round;
    if (std::optional<Change> departures = wanted_departures(job)) {
        round.change = std::move(departures);
        if (round.change->kind == Change::Kind::regroup && job.places.count(Place::ready) == 0) {
            release_quarantined(job, now);
        }
    } else {
        Cause::Joined joined{job.places.count(Place::ready), {}};
        for (const auto& [id, node] : NodesIn(job, Place::ready)) {
            if (joined.names.size() == kNamesInCause) {
                break;
            }
            joined.names.push_back(node.offer.name);
        }
        round.change.emplace();
        round.change->cause = std::move(joined);
    }
    if (!round.is_elastic()) {
        begin_ending(job, now);
        return;
    }
    round.change->deadline = after(now, job.policy.prepare_timeout);
    round.told_at = now;
    job.phase = Phase::changing;
    note(job, now, JobEvent::Kind::changing).detail = round.change->cause;
    begin_planned_incident(job, now);
    concern_members(job);
}

void begin_training(Job& job, Instant now, const std::vector<Incident>& incidents) {
    note(job, now, JobEvent::Kind::running);
    report_recovered(job, now, incidents);
}

// The incident that led to this round is open until its first step. Only then can the next begin.
void begin_planned_incident(Job& job, Instant now) {
    if (job.phase == Phase::changing && !job.ledger.awaits_training()) {
        job.ledger.begin(job.round.id, true, now, now);
    }
}

// More nodes want to leave, and the boundary has not been reached yet.
bool must_change_more(const Job& job, Instant /*clock*/) {
    const Change& change = *job.round.change;
    if (change.boundary != Change::Boundary::ahead || change.kind == Change::Kind::job_drain) {
        return false;
    }
    const std::optional<Change> wanted = wanted_departures(job);
    return wanted && (wanted->kind > change.kind || wanted->leavers.size() > change.leavers.size());
}

void change_more(Job& job, Instant /*now*/) {
    Change wanted = *wanted_departures(job);
    wanted.deadline = job.round.change->deadline;
    job.round.change = std::move(wanted);
    concern_members(job);
}

void end_at_boundary(Job& job, Instant now) {
    Round& round = job.round;
    if (job.ledger.awaits_training()) {
        job.ledger.begin(round.id, true, now, now);  // Resumed of this round was lost.
    }
    if (round.change->kind == Change::Kind::job_drain) {
        close_drained(job, now);
        return;
    }
    round.judgement.cause = round.change->cause;
    job.ledger.stopped(now, round.judgement.cause);
    begin_forming(job, now);
}

bool lost_with_daemon(const Job& job, Instant /*clock*/) {
    return job.round.change && job.round.change->kind == Change::Kind::job_drain &&
           job.round.change->lost_with_daemon;
}

}  // namespace regroup::rendezvous::core
