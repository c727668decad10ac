// SPDX-License-Identifier: Apache-2.0
//
// How a RendezvousCore ends a round: on which evidence, and when the last worker is gone.
#include <algorithm>
#include <utility>

#include "rendezvous/core/transitions.h"

namespace regroup::rendezvous::core {

namespace {

// The evidence that ends the round, if any. A broken link ends it at `link_deadline`.
std::optional<std::size_t> decisive_evidence(const Job& job, Instant clock) {
    if (const auto decisive = job.round.evidence.decisive()) {
        return decisive;
    }
    if (clock < link_deadline(job)) {
        return std::nullopt;
    }
    const std::vector<Evidence>& entries = job.round.evidence.entries();
    const auto live = std::find_if(entries.begin(), entries.end(), [&](const Evidence& entry) {
        const auto* broken = entry.as<Evidence::LinkBroken>();
        return broken != nullptr && job.round.live_breaks.contains(broken->said_by);
    });
    return live == entries.end() ? std::nullopt
                                 : std::optional(static_cast<std::size_t>(live - entries.begin()));
}

}  // namespace

bool all_finished(const Job& job, Instant /*clock*/) {
    return job.round.all_finished();
}

bool must_end(const Job& job, Instant clock) {
    return decisive_evidence(job, clock).has_value() ||
           (job.phase == Phase::changing && clock >= job.round.change->deadline);
}

// Usually one of the two workers is dead, and its node reports that soon, or is lost itself. While
// a member is under suspicion, the round waits: the member will be lost, which explains the break,
// or report.
Instant link_deadline(const Job& job) {
    if (!trains(job) || job.round.live_breaks.empty() || !job.round.missing.empty()) {
        return Instant::max();
    }
    return after(*job.round.evidence.link_broke_at(), job.policy.regroup_window);
}

void begin_ending(Job& job, Instant now) {
    Round& round = job.round;
    const std::optional<std::size_t> by = decisive_evidence(job, now);
    Instant sign = now;
    if (by) {
        const Evidence& evidence = round.evidence.entries()[*by];
        const bool of_link = evidence.as<Evidence::LinkBroken>() != nullptr ||
                             evidence.as<Evidence::RoundAbandoned>() != nullptr;
        sign = of_link ? round.evidence.link_broke_at().value_or(evidence.at) : evidence.at;
        for (const auto& [id, node] : members_of(job)) {
            if (node.report.round == round.id && node.saw_end_at >= round.began) {
                sign = std::min(sign, node.saw_end_at);
            }
        }
    }
    if (job.phase == Phase::training || job.ledger.awaits_training()) {
        job.ledger.begin(round.id, !by, sign, now);
    } else if (by) {
        job.ledger.mark_unplanned(sign);
    }
    RoundEnd end;
    end.by = by;
    if (!by) {
        end.planned = round.change->cause;
        end.planned.boundary_missed = job.phase == Phase::changing;
    }
    round.end = std::move(end);
    round.evidence.end(by);
    round.told_at = round.told_at.value_or(now);
    round.ended_at = now;
    round.hang.close();
    job.phase = Phase::ending;
    note(job, now, JobEvent::Kind::ending).detail = round.cause_of_end();
    job.overdue_at =
        std::min(job.overdue_at, after(after(now, job.policy.shutdown_timeout), kStopMargin));
    concern_members(job);
}

bool is_out(const Job& job, Instant /*clock*/) {
    const std::size_t working = job.places.count(Place::working);
    if (working == 0 || !job.round.change || working > job.round.change->leavers.size()) {
        return working == 0;
    }
    const auto unawaited = std::ranges::count_if(job.round.change->leavers, [&](const NodeId& id) {
        const auto node = job.nodes.find(id);
        return node != job.nodes.end() && node->second.place == Place::working &&
               leaves_unawaited(job, id);
    });
    return static_cast<std::size_t>(unawaited) == working;
}

void end_round(Job& job, Instant now) {
    Round& round = job.round;
    bool leaver_may_be_gone = round.change && round.change->leaver_gone;
    for (const auto& [id, node] : NodesIn(job, Place::working)) {
        leaver_may_be_gone = leaver_may_be_gone || may_be_saving(job, id);
    }
    round.end->leaver_may_be_gone = leaver_may_be_gone;
    round.judgement = round.evidence.judge(*round.end);
    job.ledger.stopped(now, round.judgement.cause);
    const bool all_leave =
        round.change && round.change->kind == Change::Kind::job_drain &&
        (round.change->boundary != Change::Boundary::ahead || round.stopped_for_change());
    if (all_leave) {
        close_drained(job, now);
    } else if (std::optional<Verdict> verdict = charge(job, now)) {
        close(job, now, std::move(*verdict));
    } else {
        begin_forming(job, now);
    }
}

}  // namespace regroup::rendezvous::core
