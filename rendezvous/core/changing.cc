// SPDX-License-Identifier: Apache-2.0
//
// How a RendezvousCore changes a round at a step boundary, to admit nodes or to let nodes leave.
#include <algorithm>
#include <utility>

#include "rendezvous/core/rendezvous_core.h"

namespace regroup::rendezvous {

namespace {

// The most nodes that the cause of a growth names.
constexpr std::size_t kNamesInCause = 32;
// The longest time that growth waits for the workers of new nodes to start.
constexpr Duration kPrestartLimit = std::chrono::seconds(30);

}  // namespace

bool RendezvousCore::may_grow() const {
    // A round in which a node has finished will end soon: it is not worth a restart.
    return phase_ == Phase::training && round_.members.size() < policy_.nodes_max &&
           places_.count(Place::ready) > 0 && round_.finished == 0;
}

Instant RendezvousCore::grow_at() const {
    // An elastic round that does not train yet has no step boundary.
    if (!may_grow() || (round_.is_elastic() && ledger_.awaits_training())) {
        return Instant::max();
    }
    const Instant at = after(round_.began, policy_.grow_after);
    const Instant cold = prestarts_.last_cold();
    // An elastic round trains while the newcomers' workers start.
    return round_.is_elastic() && cold != Instant::min() ? std::max(at, after(cold, kPrestartLimit))
                                                         : at;
}

// A node may leave while its round trains if enough nodes stay and one of them has committed a step
// in this round. If too few stay, or if the rendezvous ends with the node, all leave.
std::optional<Change> RendezvousCore::wanted_departures() const {
    // New processes have not reported yet whether they are elastic. `announces_training` says that
    // workers of earlier rounds were.
    const bool will_commit = round_.is_elastic() || round_.announces_training;
    if (places_.not_staying().empty() || (will_commit && !round_.has_committed)) {
        return std::nullopt;
    }
    Change change;
    const Node* first = nullptr;
    const Node* host = nullptr;
    for (const NodeId& id : places_.not_staying()) {
        const Node& node = nodes_.at(id);
        if (node.wish && node.place == Place::working) {
            change.leavers.insert(id);
            first = first == nullptr ? &node : first;
        }
        host = node.wish && node.offer.hosts_rendezvous ? &node : host;
    }
    const bool all_leave_with_host = host != nullptr && round_.is_elastic();
    if (first == nullptr && !all_leave_with_host) {
        return std::nullopt;
    }
    const Node& node = all_leave_with_host ? *host : *first;
    Cause::Leaving leaving{node.offer.name, *node.wish};
    const std::size_t stay = places_.staying();
    change.kind = Change::Kind::leave;
    if (round_.is_elastic() && (all_leave_with_host || stay < policy_.nodes_min)) {
        using Why = Cause::JobDrain::Why;
        const Why why = all_leave_with_host ? Why::rendezvous_goes
                        : stay == 0         ? Why::nobody_stays
                                            : Why::too_few_stay;
        change.kind = Change::Kind::job_drain;
        change.author = node.offer.name;
        change.leavers.clear();
        change.cause = Cause::JobDrain{std::move(leaving), why, stay, policy_.nodes_min};
        return change;
    }
    const bool somebody_has_state =
        !round_.is_elastic() || places_.staying(Place::working) > 0 || policy_.nodes_max == 1;
    if (!somebody_has_state) {
        // A waiting node is admitted first, and must commit a step.
        if (places_.count(Place::ready) == 0 && !failures_.any_to_release()) {
            return std::nullopt;
        }
        change.kind = Change::Kind::regroup;
        change.leavers.clear();
        leaving.hands_over = true;
    }
    change.cause = std::move(leaving);
    return change;
}

bool RendezvousCore::must_change(Instant clock) const {
    return clock >= grow_at() || wanted_departures().has_value();
}

void RendezvousCore::begin_change(Instant now) {
    if (std::optional<Change> departures = wanted_departures()) {
        round_.change = std::move(departures);
        if (round_.change->kind == Change::Kind::regroup && places_.count(Place::ready) == 0) {
            release_quarantined(now);
        }
    } else {
        const std::set<NodeId>& ready = places_.in(Place::ready);
        Cause::Joined joined{ready.size(), {}};
        for (auto id = ready.begin(); id != ready.end() && joined.names.size() < kNamesInCause;
             ++id) {
            joined.names.push_back(name_of(*id));
        }
        round_.change.emplace();
        round_.change->cause = std::move(joined);
    }
    if (!round_.is_elastic()) {
        begin_ending(now);
        return;
    }
    round_.change->deadline = after(now, policy_.prepare_timeout);
    round_.told_at = now;
    phase_ = Phase::changing;
    note(now, JobEvent::Kind::changing).detail = round_.change->cause;
    begin_planned_incident(now);
    concern_members();
}

// The incident that led to this round is open until its first step. Only then can the next begin.
void RendezvousCore::begin_planned_incident(Instant now) {
    if (phase_ == Phase::changing && !ledger_.awaits_training()) {
        ledger_.begin(round_.id, true, now, now);
    }
}

// More nodes want to leave, and the boundary has not been reached yet.
bool RendezvousCore::must_change_more(Instant /*clock*/) const {
    const Change& change = *round_.change;
    if (change.boundary != Change::Boundary::ahead || change.kind == Change::Kind::job_drain) {
        return false;
    }
    const std::optional<Change> wanted = wanted_departures();
    return wanted && (wanted->kind > change.kind || wanted->leavers.size() > change.leavers.size());
}

void RendezvousCore::change_more(Instant /*now*/) {
    Change wanted = *wanted_departures();
    wanted.deadline = round_.change->deadline;
    round_.change = std::move(wanted);
    concern_members();
}

bool RendezvousCore::is_at_boundary(Instant clock) const {
    return is_out(clock);
}

void RendezvousCore::end_at_boundary(Instant now) {
    if (ledger_.awaits_training()) {
        ledger_.begin(round_.id, true, now, now);  // Resumed of this round was lost.
    }
    if (round_.change->kind == Change::Kind::job_drain) {
        close_drained(now);
        return;
    }
    round_.judgement.cause = round_.change->cause;
    ledger_.stopped(now, round_.judgement.cause);
    begin_forming(now);
}

bool RendezvousCore::lost_with_daemon(Instant /*clock*/) const {
    return round_.change && round_.change->kind == Change::Kind::job_drain &&
           round_.change->lost_with_daemon;
}

}  // namespace regroup::rendezvous
