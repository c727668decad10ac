// SPDX-License-Identifier: Apache-2.0
//
// How a RendezvousCore handles a round of which some ranks have ended with success, and others go
// on. The program may want that, or it is a mistake that no failure will ever report.
#include <algorithm>
#include <utility>

#include "rendezvous/base/exit_code.h"
#include "rendezvous/core/transitions.h"

namespace regroup::rendezvous::core {

namespace {

// The ranks of most programs end within this time, so that there is nothing to tell.
constexpr Duration kTellAfter = std::chrono::seconds(5);

}  // namespace

// Only what a member says about its own ranks counts.
void observe_finished(Job& job, Instant now, const Node& node) {
    Round& round = job.round;
    const NodeReport& report = node.report;
    const RankSet::Range own{seat_of(job, node).assignment.first_rank, node.offer.workers};
    const std::uint64_t before = round.finish.ranks.size();
    if (report.state == NodeState::finished) {
        round.finish.ranks.add(own);
    }
    for (const RankSet::Range& range : report.finished.ranges()) {
        const std::uint64_t end = std::uint64_t{range.first} + range.count;
        if (range.first >= own.first && end <= std::uint64_t{own.first} + own.count) {
            round.finish.ranks.add(range);
        }
    }
    if (round.finish.ranks.size() == before) {
        return;
    }
    round.finish.since = round.finish.since.value_or(now);
    if (const PartialFinish finish = partial_finish(job, now);
        round.finish.told && !finish.awaited.empty()) {
        note(job, now, JobEvent::Kind::finished, node).detail = finish;
    }
}

PartialFinish partial_finish(const Job& job, Instant now) {
    const Round& round = job.round;
    PartialFinish result;
    if (!trains(job) || !round.finish.since || round.members == 0) {
        return result;
    }
    result.finished = round.finish.ranks;
    result.awaited = RankSummary::of_others(round.finish.ranks, round.world_size());
    result.since = std::max(Duration::zero(), now - *round.finish.since);
    if (job.policy.finish_timeout > Duration::zero()) {
        result.left = std::max(Duration::zero(), job.policy.finish_timeout - result.since);
    }
    return result;
}

Instant tell_finish_at(const Job& job) {
    return trains(job) && job.round.finish.since && !job.round.finish.told
               ? after(*job.round.finish.since, kTellAfter)
               : Instant::max();
}

// The members hear it with the answers to their heartbeats.
void tell_finish(Job& job, Instant now) {
    job.round.finish.told = true;
    note(job, now, JobEvent::Kind::finished).detail = partial_finish(job, now);
}

Instant finish_deadline(const Job& job) {
    return trains(job) && job.round.finish.since && job.policy.finish_timeout > Duration::zero()
               ? after(*job.round.finish.since, job.policy.finish_timeout)
               : Instant::max();
}

bool is_unfinished(const Job& job, Instant clock) {
    return clock >= finish_deadline(job);
}

void close_unfinished(Job& job, Instant now) {
    JobEnding ending(JobEnding::Kind::unfinished);
    ending.partial_finish = partial_finish(job, now);
    ending.waited = job.policy.finish_timeout;
    const Author author(Author::Kind::rendezvous);
    close(job, now, {Outcome::failed, std::move(ending), author, kExitUnfinished, 0, {}, {}});
}

}  // namespace regroup::rendezvous::core
