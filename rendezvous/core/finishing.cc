// SPDX-License-Identifier: Apache-2.0
//
// How a RendezvousCore handles a round of which some ranks have ended with success, and others go
// on. That may be as the program wants it, or a mistake: no failure will ever say so.
#include <algorithm>
#include <utility>

#include "rendezvous/base/exit_code.h"
#include "rendezvous/core/rendezvous_core.h"

namespace regroup::rendezvous {

namespace {

// The ranks of most programs end within this time, so that there is nothing to tell.
constexpr Duration kTellAfter = std::chrono::seconds(5);

}  // namespace

// Only what a member says about its own ranks counts.
void RendezvousCore::observe_finished(Instant now, const NodeId& id, const Node& node) {
    const NodeReport& report = node.report;
    const RankSet::Range own{round_.members.at(id).first_rank, node.offer.workers};
    const std::uint64_t before = round_.finished_ranks.size();
    if (report.state == NodeState::finished) {
        round_.finished_ranks.add(own);
    }
    for (const RankSet::Range& range : report.finished.ranges()) {
        const std::uint64_t end = std::uint64_t{range.first} + range.count;
        if (range.first >= own.first && end <= std::uint64_t{own.first} + own.count) {
            round_.finished_ranks.add(range);
        }
    }
    if (round_.finished_ranks.size() == before) {
        return;
    }
    round_.finished_since = round_.finished_since.value_or(now);
    if (const PartialFinish finish = partial_finish(now);
        round_.finish_told && !finish.awaited.empty()) {
        note(now, JobEvent::Kind::finished, id, node).detail = finish;
    }
}

PartialFinish RendezvousCore::partial_finish(Instant now) const {
    PartialFinish result;
    const bool trains = phase_ == Phase::training || phase_ == Phase::changing;
    if (!trains || !round_.finished_since || round_.members.empty()) {
        return result;
    }
    result.finished = round_.finished_ranks;
    result.awaited =
        RankSummary::of_others(round_.finished_ranks, round_.members.begin()->second.world_size);
    result.since = std::max(Duration::zero(), now - *round_.finished_since);
    if (policy_.finish_timeout > Duration::zero()) {
        result.left = std::max(Duration::zero(), policy_.finish_timeout - result.since);
    }
    return result;
}

Instant RendezvousCore::tell_finish_at() const {
    const bool trains = phase_ == Phase::training || phase_ == Phase::changing;
    return trains && round_.finished_since && !round_.finish_told
               ? after(*round_.finished_since, kTellAfter)
               : Instant::max();
}

// The members hear it with the answers to their heartbeats.
void RendezvousCore::tell_finish(Instant now) {
    round_.finish_told = true;
    note(now, JobEvent::Kind::finished).detail = partial_finish(now);
}

Instant RendezvousCore::finish_deadline() const {
    const bool trains = phase_ == Phase::training || phase_ == Phase::changing;
    return trains && round_.finished_since && policy_.finish_timeout > Duration::zero()
               ? after(*round_.finished_since, policy_.finish_timeout)
               : Instant::max();
}

bool RendezvousCore::is_unfinished(Instant clock) const {
    return clock >= finish_deadline();
}

void RendezvousCore::close_unfinished(Instant now) {
    Ending ending(Ending::Kind::unfinished);
    ending.partial_finish = partial_finish(now);
    ending.waited = policy_.finish_timeout;
    Verdict verdict;
    verdict.outcome = Outcome::failed;
    verdict.author = Author(Author::Kind::rendezvous);
    verdict.exit_code = kExitUnfinished;
    verdict.reason = std::move(ending);
    close(now, std::move(verdict));
}

}  // namespace regroup::rendezvous
