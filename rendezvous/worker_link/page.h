// SPDX-License-Identifier: Apache-2.0
//
// The memory that an agent shares with each of its workers that links the SDK, for values that must
// be read or written without a system call and without waiting for a thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "rendezvous/base/telemetry_limits.h"

namespace regroup::worker_link {

/// The version of the layout below. A worker built with another version gets no link. A new layout,
/// or a new meaning of a field, needs a new kLinkVersion, and kOldestLinkVersion raised to it. A
/// new field in unused space, whose zero means that nothing is known, needs neither.
inline constexpr std::uint32_t kPageVersion = 3;

/// The activity of a worker, for the detection of hangs.
enum class Phase : std::uint32_t {
    starting,   ///< Has attached; has no round yet.
    suspended,  ///< Waits for a round; never a hang.
    forming,    ///< Forms the communicators of a round.
    training,   ///< Between two commits.
    section,    ///< In a named section; see `WorkerPage::section`.
    leaving,    ///< Saves its state and ends.
};

/// Whether the last error of the SDK came from another rank.
enum class PeerError : std::uint32_t {
    none,
    awaited,  ///< The other rank did not come in time.
    lost,     ///< The other rank had ended, or had given up.
};

/// Whether the node of a worker leaves, and where its workers save their state and end.
enum class Leaving : std::uint32_t {
    no,
    /// At the step boundary of `WorkerPage::pause_round`, if all ranks reach it. A worker that
    /// suspends without knowing that waits for one more round, or for `at_once`.
    at_boundary,
    /// Suspended workers save the state that they have, since no later boundary will come.
    at_once,
};

/// The measurements of the worker since its process began, in steps in which it had rank 0; see
/// StepCounters. All times are in ns.
/// `steps` is written last, so a reader that reads it first gets times of at least so many steps.
struct TelemetryBlock {
    std::atomic<std::uint64_t> steps{0};
    std::atomic<std::uint64_t> samples{0};
    std::atomic<std::int64_t> data{0};
    std::atomic<std::int64_t> compute{0};
    std::atomic<std::int64_t> communication{0};
    std::atomic<std::int64_t> waiting{0};

    /// A value that the program reports. The name, which ends with a zero, is written before
    /// `values_count` and never changes. `value` is not finite while the program has none.
    struct Value {
        std::array<char, kValueNameBytesMax + 1> name{};
        std::atomic<double> value{0};
    };
    std::atomic<std::uint32_t> values_count{0};
    std::array<Value, kReportedValuesMax> values{};
};

/// Bytes that the SDK moves for the program.
enum class TransferKind : std::uint32_t {
    none,
    state,  ///< From a rank that has the state to those that need it.
    save,   ///< Into a checkpoint.
    load,   ///< From a checkpoint.
};
/// The present transfer of a worker. `kind` is none between transfers, and written last.
struct TransferBlock {
    std::atomic<TransferKind> kind{TransferKind::none};
    std::atomic<std::uint64_t> total{0};
    std::atomic<std::uint64_t> done{0};
};

/// One page per worker process, in a memfd that the agent sends with Welcome. The fields are
/// atomics in shared memory, and each has one writer, as marked below. A reader may see fields of
/// different instants, so no decision depends on a single look.
///
/// `alive` is a futex in the kernel's robust list of the SDK's control thread, which holds it for
/// the life of the process. When that thread ends, before the memory of the process is freed, the
/// kernel marks the futex (FUTEX_OWNER_DIED) and wakes the agent. By then /proc/PID/stat shows how
/// the process ended. The word has the layout of futex(2): the thread's id, FUTEX_WAITERS,
/// FUTEX_OWNER_DIED.
struct WorkerPage {  // NOLINT(clang-analyzer-optin.performance.Padding): by who writes
    std::uint32_t version = kPageVersion;
    std::uint32_t reserved = 0;

    // ---- Written by the worker.

    alignas(64) std::atomic<std::uint32_t> alive{0};
    /// 1 once the process has begun to end by itself (exit, return from main). The agent then
    /// ignores the end of `alive` and waits for the exit status as for any process.
    std::atomic<std::uint32_t> exiting{0};

    alignas(64) std::atomic<std::uint64_t> round{0};  ///< The round it trains; 0 while suspended.
    std::atomic<std::uint64_t> step{0};               ///< Steps committed, over all rounds.
    std::atomic<Phase> phase{Phase::starting};
    /// Counts the changes of `phase` and `section`, and commits. The worker hangs if it stays
    /// unchanged for too long.
    std::atomic<std::uint64_t> beats{0};
    /// CLOCK_MONOTONIC of the last beat, in ns.
    std::atomic<std::int64_t> beat_at{0};
    /// The longest completed time, in ns, that this process spent in the current kind of work (a
    /// step, or a section by its name); 0: none. Written before `beats`.
    std::atomic<std::int64_t> longest{0};
    /// The numbers of issued and of complete collectives in this round. They differ while one is in
    /// progress; `waiting` is 1 while the worker's own thread waits for one.
    std::atomic<std::uint64_t> operations_issued{0};
    std::atomic<std::uint64_t> operations_done{0};
    std::atomic<std::uint32_t> waiting{0};
    /// Name of the section, or of the collective that the worker waits for; ends with a zero.
    std::array<char, 48> section{};
    /// 1 once its training is finished. A leaving worker that ends with success without this has
    /// left.
    std::atomic<std::uint32_t> finished{0};
    /// A PeerError; written before the program hears of the error, and cleared when a round begins.
    /// In what was unused space before: an older worker leaves it at `none`.
    std::atomic<std::uint32_t> peer_error{0};
    /// 1 once the program has learned that all ranks stop here, because a stop was asked for: if it
    /// ends with success, its training is not finished. In what was unused space before.
    std::atomic<std::uint32_t> stopped{0};

    alignas(64) TelemetryBlock telemetry{};
    alignas(64) TransferBlock transfer{};

    // ---- Written by the agent.

    /// Rounds up to this one are over: their workers neither commit nor write a checkpoint.
    alignas(64) std::atomic<std::uint64_t> ended_round{0};
    /// Workers of this round (and below) suspend at the next step boundary.
    std::atomic<std::uint64_t> pause_round{0};
    std::atomic<Leaving> leaving{Leaving::no};
    /// 1 once the node is to leave because of a signal: the agent then decides when this worker
    /// ends.
    std::atomic<std::uint32_t> draining{0};
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<double>::is_always_lock_free);
static_assert(sizeof(WorkerPage) <= 4096, "one page");

}  // namespace regroup::worker_link
