// SPDX-License-Identifier: Apache-2.0
//
// Where each node of a RendezvousCore's job stands.
#include "rendezvous/core/job.h"

#include <algorithm>
#include <set>
#include <utility>

#include "rendezvous/base/ensure.h"

namespace regroup::rendezvous::core {

namespace {

// Between two rounds there is no step boundary to save state at. A node that holds state takes part
// in the next round, and leaves from there. If no round can form, it saves the state that it holds.
bool leaves_later(const Job& job, const NodeId& id, const Node& node) {
    return job.phase == Phase::forming && may_keep_state(node.report) &&
           node.report.round != RoundId::none && job.nodes.size() >= job.policy.nodes_min &&
           !leaves_unawaited(job, id) &&
           !(job.round.stopped_for_change() && leaves_with_change(job, id));
}

Place place_of(const Job& job, const NodeId& id, const Node& node) {
    const NodeReport& report = node.report;
    const bool has_workers = !has_no_workers(report);
    if (is_member(job, node)) {
        if (report.round < job.round.id || has_workers) {
            return Place::working;
        }
        const bool finished = report.round == job.round.id && report.state == NodeState::finished;
        return finished ? Place::finished : Place::out;
    }
    if (job.phase == Phase::closed) {
        return Place::away;
    }
    if (node.wish && !leaves_later(job, id, node)) {
        return Place::leaving;
    }
    if (job.failures.is_quarantined(node.offer.name)) {
        return Place::quarantined;
    }
    if (has_workers || job.detector.suspects(node.slot)) {
        return was_member(job, node) || report.held_step > 0 ? Place::outstanding : Place::away;
    }
    return Place::ready;
}

}  // namespace

Job::Job(JobPolicy job_policy, std::int64_t began)
    : policy(std::move(job_policy)),
      began_ms(began),
      detector(policy.heartbeat_timeout, policy.regroup_window),
      budget(policy),
      failures(policy.budgets.node_failures_max, policy.budgets.node_failures_window) {
    ENSURE(validate(policy).has_value());
}

std::string name_of(const Job& job, const NodeId& id) {
    const auto found = job.nodes.find(id);
    // An id is for the node and the daemon only.
    return found == job.nodes.end() ? "a lost node" : found->second.offer.name;
}

std::optional<NodeId> node_with(const Job& job, std::uint32_t rank) {
    const Seat* const seat = job.round.seat_with(rank);
    const auto found = seat == nullptr ? job.nodes.end() : job.nodes.find(seat->node);
    const bool has_it = found != job.nodes.end() && is_of_round(job, found->second) &&
                        rank - seat->assignment.first_rank < found->second.offer.workers;
    return has_it ? std::optional(seat->node) : std::nullopt;
}

std::optional<std::string> name_with(const Job& job, std::uint32_t rank) {
    const std::optional<NodeId> node = node_with(job, rank);
    return node ? std::optional(name_of(job, *node)) : std::nullopt;
}

bool leaves_with_change(const Job& job, const NodeId& id) {
    const std::optional<Change>& change = job.round.change;
    return change && (change->kind == Change::Kind::job_drain || change->leavers.contains(id));
}

bool leaves_unawaited(const Job& job, const NodeId& id) {
    const std::optional<Change>& change = job.round.change;
    return change && change->boundary == Change::Boundary::seen_by_stayer &&
           change->leavers.contains(id);
}

bool may_be_saving(const Job& job, const NodeId& id) {
    return leaves_with_change(job, id) && job.round.change->boundary != Change::Boundary::ahead;
}

Cause why_leaving(const Job& job, const Node& node) {
    if (job.round.change && job.round.change->kind == Change::Kind::job_drain) {
        return job.round.change->cause;
    }
    return Cause::Leaving{node.offer.name, node.wish.value_or(LeaveWish{})};
}

Instant out_by(const Job& job, const NodeId& id, const Node& node) {
    if (job.detector.suspects(node.slot)) {
        return job.detector.lost_at(node.slot);
    }
    Instant since = node.stray_since;
    if (is_member(job, node)) {
        since = job.phase == Phase::ending && !leaves_unawaited(job, id)
                    ? job.round.ended_at.value_or(Instant::max())
                    : Instant::max();
    }
    if (since == Instant::max()) {
        return since;
    }
    const Instant usual = after(after(since, job.policy.shutdown_timeout), kStopMargin);
    const Instant user = node.in_user_code_until;
    return user == Instant::min() ? usual : std::max(usual, after(user, kStopMargin));
}

HangInquiry::Working working(const Job& job) {
    return {job.places.count(Place::working), [&job] {
                std::set<NodeId> ids;
                for (const auto& [id, node] : NodesIn(job, Place::working)) {
                    ids.insert(ids.end(), id);
                }
                return ids;
            }};
}

void place(Job& job, Instant now, const NodeId& id, Node& node) {
    const Place place = place_of(job, id, node);
    const bool stays = !node.wish && !job.failures.is_kept_out(node.offer.name);
    if (place != Place::ready) {
        if (place != node.place) {
            job.prestarts.remove(id);
        }
    } else if (node.report.elastic) {
        job.prestarts.set_warm(id);
    }
    if (place != node.place || stays != node.stays) {
        job.places.remove(id, std::exchange(node.place, place), std::exchange(node.stays, stays));
        job.places.add(id, place, stays);
    }
    if (place == Place::outstanding && !has_no_workers(node.report)) {
        node.stray_since = std::min(node.stray_since, now);
        job.overdue_at = std::min(job.overdue_at, out_by(job, id, node));
    } else {
        node.stray_since = Instant::max();
    }
    if (is_member(job, node)) {
        job.round.note_member(id,
                              place == Place::working && node.report.state == NodeState::running,
                              job.detector.suspects(node.slot));
    }
}

void place_all(Job& job, Instant now) {
    for (auto& [id, node] : job.nodes) {
        place(job, now, id, node);
    }
}

void place_leavers(Job& job, Instant now) {
    if (job.phase != Phase::forming) {
        return;
    }
    const std::set<NodeId> leavers = job.places.not_staying();
    for (const NodeId& id : leavers) {
        Node& node = job.nodes.at(id);
        place(job, now, id, node);
        if (node.place == Place::leaving) {
            job.outbox.concern(node);
        }
    }
}

JobEvent& note(Job& job, Instant now, JobEvent::Kind kind) {
    JobEvent& event = job.outbox.events.emplace_back();
    event.at = now;
    event.kind = kind;
    event.round = job.round.id;
    event.step = job.budget.step();
    return event;
}

JobEvent& note(Job& job, Instant now, JobEvent::Kind kind, const Node& node) {
    JobEvent& event = note(job, now, kind);
    event.node = node.offer.name;
    if (is_of_round(job, node)) {
        event.first_rank = seat_of(job, node).assignment.first_rank;
        event.workers = node.offer.workers;
    }
    return event;
}

void readmit(Job& job, Instant now, const std::vector<std::string>& names,
             const JobEvent::Detail& detail) {
    if (names.empty()) {
        return;
    }
    for (const std::string& name : names) {
        JobEvent& event = note(job, now, JobEvent::Kind::released);
        event.node = name;
        event.detail = detail;
    }
    for (auto& [id, node] : job.nodes) {
        if (std::ranges::find(names, node.offer.name) != names.end()) {
            place(job, now, id, node);
        }
    }
}

void report_recovered(Job& job, Instant now, const std::vector<Incident>& incidents) {
    for (const Incident& incident : incidents) {
        note(job, now, JobEvent::Kind::recovered).detail = Boxed<Incident>(incident);
        for (const auto& [id, node] : members_of(job)) {
            job.outbox.send(id, Recovered{incident});
        }
    }
}

void concern_members(Job& job) {
    for (const auto& [id, node] : members_of(job)) {
        job.outbox.concern(node);
    }
}

}  // namespace regroup::rendezvous::core
