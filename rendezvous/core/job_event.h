// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "rendezvous/base/boxed.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/core/messages.h"

namespace regroup::rendezvous {

/// Something that happened to a job, for people and their tools: the event log, the page, metrics
/// and traces are made from these. Nothing is decided by them. The same journal gives the same
/// events.
struct JobEvent {
    /// The names in `to_string` are part of the interface: docs/events.md lists them.
    enum class Kind : std::uint8_t {
        joined,       ///< `node` has joined the job.
        left,         ///< `node` has left by itself; `detail`: Departure.
        lost,         ///< `node` is lost; `detail`: Departure.
        draining,     ///< `node` is to leave; `detail`: Cause.
        quarantined,  ///< `node` is kept out of rounds; `detail`: Cause.
        released,     ///< `node` is no longer kept out; `detail`: Release, if an operator did it.
        restored,     ///< A daemon has taken the job up from its journal.
        assigned,     ///< `round` was formed; `detail`: Members. `cause`: why.
        running,      ///< `round` has committed `step`, its first, or its programs run (step 0).
        failed,       ///< A worker of `round` failed; `detail`: WorkerFailure.
        slow,         ///< A rank of `node` lets the others wait; `detail`: SlowRank.
        hanging,      ///< A worker of `round` makes no progress; `detail`: Cause (Hung).
        finished,     ///< Ranks of `round` have finished, others go on; `detail`: PartialFinish.
        changing,     ///< `round` is to change at its next step boundary; `detail`: Cause.
        ending,       ///< `round` is to end; `detail`: Cause, as far as it is known.
        recovered,    ///< `detail`: Incident: planned, unplanned or cut short.
        closed,       ///< The job has ended; `detail`: Verdict.
    };
    struct Release {
        std::string author;
        std::string reason;  ///< May be empty.
    };
    /// A node of a round, with its ranks [first_rank, first_rank + workers).
    struct Member {
        std::string node;
        std::uint32_t first_rank = 0;
        std::uint32_t workers = 0;
    };
    /// By group rank.
    using Members = std::vector<Member>;
    using Detail =
        std::variant<std::monostate, Cause, Departure, Boxed<WorkerFailure>, Boxed<Incident>,
                     Boxed<Verdict>, Release, Members, PartialFinish, SlowRank>;

    Instant at{};  ///< On the job's timeline.
    Kind kind = Kind::joined;
    /// The current round, or the last one; none before the first.
    RoundId round = RoundId::none;
    std::string node{};
    /// The ranks of `node` in `round`; `workers` is 0 if it has none there.
    std::uint32_t first_rank = 0;
    std::uint32_t workers = 0;
    std::uint64_t step = 0;  ///< The highest committed step of the job by then.
    Detail detail{};
    Cause cause{};  ///< For Kind::assigned.
};
[[nodiscard]] std::string_view to_string(JobEvent::Kind kind) noexcept;

}  // namespace regroup::rendezvous
