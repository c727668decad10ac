// SPDX-License-Identifier: Apache-2.0
//
// The memory that an agent shares with each of its workers that links the SDK: what must be read or
// told without a system call, and without waiting for a thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace regroup::worker_link {

/// A value of the layout below; a worker that was built against another one has no link. A new one,
/// or another meaning of a field, needs a new kLinkVersion, and no older worker is served then
/// (kOldestLinkVersion).
inline constexpr std::uint32_t kPageVersion = 1;

/// What a worker is doing, as far as hangs are concerned.
enum class Phase : std::uint32_t {
    starting,   ///< Has attached, has no round yet.
    suspended,  ///< Waits for a round; never a hang.
    forming,    ///< Forms the communicators of a round.
    training,   ///< Between two commits.
    section,    ///< In a named section; see `WorkerPage::section`.
    leaving,    ///< Saves its state and goes.
};

/// Whether the node of a worker leaves, and where its workers save their state and end.
enum class Leaving : std::uint32_t {
    no,
    /// At the step boundary of `WorkerPage::pause_round`, if all ranks come to it. Who suspends
    /// without knowing that they have waits: for a place in one more round, or for `at_once`.
    at_boundary,
    /// Those who are suspended save what they have, too: there will be no better place.
    at_once,
};

/// One of them per worker process, in memory of its own (a memfd that the agent sends with
/// Welcome). Plain atomics in shared memory: each field has one writer, named with it. A reader may
/// see fields of different instants; nothing is decided from one look alone.
///
/// `alive` is a futex in the kernel's robust list of the SDK's control thread, which holds it for
/// the life of the process: the kernel marks it (FUTEX_OWNER_DIED) and wakes the agent when that
/// thread ends, which is before the process's memory is freed. How the process ended is by then in
/// /proc/PID/stat. Layout of the word: the thread's id, FUTEX_WAITERS, FUTEX_OWNER_DIED, as
/// futex(2) has it.
struct WorkerPage {  // NOLINT(clang-analyzer-optin.performance.Padding): by who writes
    std::uint32_t version = kPageVersion;
    std::uint32_t reserved = 0;

    // ---- Written by the worker.

    alignas(64) std::atomic<std::uint32_t> alive{0};
    /// 1 once the process has begun to end by itself (exit, return from main): the end of `alive`
    /// is then no news, and the agent waits for the exit status as for any process.
    std::atomic<std::uint32_t> exiting{0};

    alignas(64) std::atomic<std::uint64_t> round{0};  ///< In which it trains; 0 while suspended.
    std::atomic<std::uint64_t> step{0};               ///< Steps committed, over all rounds.
    std::atomic<Phase> phase{Phase::starting};
    /// Counts the changes of `phase` and `section`, and commits: a hang is when it stands still.
    std::atomic<std::uint64_t> beats{0};
    /// CLOCK_MONOTONIC of the last beat, in ns.
    std::atomic<std::int64_t> beat_at{0};
    /// How long the present kind of work (a step, a section by its name) took at most, in ns, of
    /// those times that this process has left it again; 0: none. Written before `beats`.
    std::atomic<std::int64_t> longest{0};
    /// Collectives that were issued, and that are complete, in this round. Unequal while one is in
    /// flight; `waiting` is 1 while the worker's own thread waits for one.
    std::atomic<std::uint64_t> operations_issued{0};
    std::atomic<std::uint64_t> operations_done{0};
    std::atomic<std::uint32_t> waiting{0};
    /// Name of the section, or of the collective that is waited for; ends with a zero.
    std::array<char, 48> section{};
    /// 1 once its training is finished; without it, who was to leave and ends with success has
    /// left.
    std::atomic<std::uint32_t> finished{0};

    // ---- Written by the agent.

    /// Rounds up to this one are over: their workers neither commit nor write a checkpoint.
    alignas(64) std::atomic<std::uint64_t> ended_round{0};
    /// Workers of this round (and below) suspend at the next step boundary.
    std::atomic<std::uint64_t> pause_round{0};
    std::atomic<Leaving> leaving{Leaving::no};
    /// 1 once the node is to leave because of a signal: when this worker ends is its agent's
    /// affair.
    std::atomic<std::uint32_t> draining{0};
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(sizeof(WorkerPage) <= 4096, "one page");

}  // namespace regroup::worker_link
