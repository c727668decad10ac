// SPDX-License-Identifier: Apache-2.0
//
// The state of a RendezvousCore's job as a value, for `status` and for waiting nodes.
#include <algorithm>
#include <iterator>
#include <limits>
#include <tuple>
#include <utility>

#include "rendezvous/base/names.h"
#include "rendezvous/core/orders.h"
#include "rendezvous/core/transitions.h"

namespace regroup::rendezvous {

std::string_view to_string(Phase phase) noexcept {
    return name_in({"forming", "training", "changing", "ending", "closed"}, phase);
}

std::string_view to_string(JobStatus::Membership place) noexcept {
    return name_in({"member", "waiting", "standby", "quarantined", "leaving", "away"}, place);
}

std::string_view to_string(JobStatus::Budget::Kind kind) noexcept {
    return name_in({"failures", "node losses", "hangs", "rounds without progress"}, kind);
}

namespace core {

namespace {

void add_quarantined(const Job& job, Instant now, Situation& situation) {
    for (const auto& [id, node] : NodesIn(job, Place::quarantined)) {
        if (situation.quarantined.size() == Situation::kQuarantinedMax) {
            situation.more_quarantined =
                job.places.count(Place::quarantined) - Situation::kQuarantinedMax;
            break;
        }
        const std::string& name = node.offer.name;
        const auto& entry = job.failures.quarantined().at(name);
        situation.quarantined.push_back(
            {name, entry.why, std::max(Duration::zero(), entry.until - now)});
    }
}

JobStatus::Node status_of(const Job& job, Instant now, const NodeId& id, const Node& node) {
    const Round& round = job.round;
    JobStatus::Node row;
    row.id = id;
    row.name = node.offer.name;
    row.address = node.offer.address;
    row.state = node.report.state;
    row.workers = node.offer.workers;
    row.elastic = node.report.elastic;
    // Elastic workers: the step that they hold now, which may be lower than the highest one.
    row.step = node.report.elastic ? node.report.held_step : node.report.step;
    row.held_step = node.report.held_step;
    row.silent = std::max(Duration::zero(), now - job.detector.heard_at(node.slot));
    if (is_member(job, node)) {
        const Assignment& assignment = seat_of(job, node).assignment;
        row.place = JobStatus::Membership::member;
        row.group_rank = assignment.group_rank;
        row.first_rank = assignment.first_rank;
        row.finished = node.report.round == round.id ? node.report.finished : RankSet();
        row.unheard_of = node.report.round < round.id ? round.id : RoundId::none;
    } else if (job.failures.is_quarantined(node.offer.name)) {
        row.place = JobStatus::Membership::quarantined;
        row.quarantine = job.failures.quarantined().at(node.offer.name).why;
    } else if (job.phase == Phase::training && round.members >= job.policy.nodes_max) {
        row.place = JobStatus::Membership::standby;
        row.prestarted = job.prestarts.contains(id);
    }
    if (node.wish ||
        (is_member(job, node) && job.phase == Phase::changing && leaves_with_change(job, id))) {
        row.place = JobStatus::Membership::leaving;
        row.leaving = why_leaving(job, node);
    } else if (job.detector.suspects(node.slot)) {
        row.place = JobStatus::Membership::away;
    }
    return row;
}

}  // namespace

Situation situation(const Job& job, Instant now) {
    const Round& round = job.round;
    using Kind = Situation::Kind;
    Situation s;
    s.round = round.id;
    s.nodes_min = job.policy.nodes_min;
    s.nodes_max = job.policy.nodes_max;
    s.ready = job.places.count(Place::ready);
    s.members = round.members;
    const auto until = [&](Instant at) { s.left = std::max(Duration::zero(), at - now); };
    const auto await = [&](Place place) {
        for (const auto& [id, node] : NodesIn(job, place)) {
            if (s.awaited.size() == Situation::kNamesMax) {
                s.more_awaited = true;
                break;
            }
            if (place != Place::working || !leaves_unawaited(job, id)) {
                s.awaited.push_back(node.offer.name);
            }
        }
    };
    s.partial_finish = partial_finish(job, now);
    switch (job.phase) {
        case Phase::forming:
            if (s.ready < job.policy.nodes_min) {
                s.kind = Kind::gathering;
                add_quarantined(job, now, s);
            } else if (job.formation.is_backing_off()) {
                s.kind = Kind::backing_off;
                s.cause = round.judgement.cause;
                until(job.formation.back_off_until);
            } else if (job.places.count(Place::outstanding) > 0) {
                s.kind = Kind::awaiting;
                Instant last = Instant::min();
                for (const auto& [id, node] : NodesIn(job, Place::outstanding)) {
                    last = std::max(last, out_by(job, id, node));
                }
                await(Place::outstanding);
                until(last);
            } else {
                s.kind = Kind::last_call;
                until(std::max(job.formation.last_call_until, now));
            }
            break;
        case Phase::training:
            s.kind = round.hang.is_hang() ? Kind::hanging : Kind::training;
            if (const auto& inquiry = round.hang.open(); round.hang.is_hang()) {
                s.hang = inquiry->hang.text;
                s.culprit = inquiry->culprit;
                s.culprit_is_ended = inquiry->stage == HangInquiry::Stage::ending;
            }
            break;
        case Phase::changing:
            s.kind = Kind::changing;
            s.cause = round.change->cause;
            await(Place::working);
            until(round.change->deadline);
            break;
        case Phase::ending: {
            s.kind = Kind::ending;
            s.cause = round.cause_of_end();
            await(Place::working);
            const Instant usual =
                after(after(*round.ended_at, job.policy.shutdown_timeout), kStopMargin);
            Instant last = usual;
            for (const auto& [id, node] : NodesIn(job, Place::working)) {
                const Instant out = out_by(job, id, node);
                last = out == Instant::max() ? last : std::max(last, out);
            }
            s.in_user_code = last > usual;
            until(last);
            break;
        }
        case Phase::closed:
            s.kind = Kind::closed;
            s.author = job.verdict->author;
            s.ending = job.verdict->reason;
            break;
    }
    return s;
}

JobStatus status(const Job& job, Instant now) {
    JobStatus status;
    status.phase = job.phase;
    status.situation = situation(job, now);
    status.round = job.round.id;
    status.world_size = in_round(job) && job.round.members > 0 ? job.round.world_size() : 0;
    status.elastic = in_round(job) && job.round.is_elastic();
    status.step = job.reached.now();
    status.goodput = job.verdict ? job.verdict->goodput : job.ledger.goodput();
    if (!job.verdict) {
        status.goodput.lasted = now - job.first_began.value_or(now);
    }
    status.restarts = job.budget.restarts();
    // A rank is looked up once for each node, and not in each comparison. A row is moved once.
    std::vector<JobStatus::Node> rows;
    std::vector<std::pair<std::uint32_t, std::size_t>> order;
    rows.reserve(job.nodes.size());
    order.reserve(job.nodes.size());
    for (const auto& [id, node] : job.nodes) {
        rows.push_back(status_of(job, now, id, node));
        order.emplace_back(is_member(job, node) ? rows.back().group_rank
                                                : std::numeric_limits<std::uint32_t>::max(),
                           rows.size() - 1);
    }
    std::sort(order.begin(), order.end(), [&rows](const auto& a, const auto& b) {
        if (a.first != b.first) {
            return a.first < b.first;
        }
        const JobStatus::Node& one = rows[a.second];
        const JobStatus::Node& other = rows[b.second];
        return one.name != other.name ? natural_less(one.name, other.name) : one.id < other.id;
    });
    status.nodes.reserve(rows.size());
    for (const auto& [rank, row] : order) {
        status.nodes.push_back(std::move(rows[row]));
    }
    for (const auto& [name, entry] : job.failures.quarantined()) {
        status.quarantined.push_back(
            {name, entry.why, std::max(Duration::zero(), entry.until - now)});
    }
    using Kind = JobStatus::Budget::Kind;
    status.budgets = {
        {Kind::failures, job.budget.used(Charge::failure), job.budget.allowed(Charge::failure)},
        {Kind::node_losses, job.budget.used(Charge::loss), job.budget.allowed(Charge::loss)},
    };
    if (job.policy.budgets.hangs) {
        status.budgets.push_back(
            {Kind::hangs, job.budget.used(Charge::hang), job.policy.budgets.hangs});
    }
    if (job.policy.budgets.no_progress_max > 0) {
        status.budgets.push_back({Kind::rounds_without_progress,
                                  job.budget.rounds_without_progress(),
                                  job.policy.budgets.no_progress_max});
    }
    status.incidents.assign(job.ledger.recent().begin(), job.ledger.recent().end());
    status.verdict = job.verdict;
    return status;
}

}  // namespace core
}  // namespace regroup::rendezvous
