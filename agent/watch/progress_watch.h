// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rendezvous/base/clock.h"
#include "rendezvous/core/messages.h"
#include "rendezvous/worker_link/page.h"

namespace regroup::agent {

/// The times that a worker may take without progress.
struct HangLimits {
    /// The limit of a kind of work is so many times its longest time.
    double factor = 5;
    /// The shortest limit.
    Duration floor = std::chrono::seconds(10);
    /// The limit of work without a known time: the first step of a process or of a round, and the
    /// first time of a section. Also the limit of forming a group, which waits for new processes.
    Duration first = std::chrono::minutes(10);
    /// The longest limit. Also the longest silence of workers without the SDK.
    std::optional<Duration> most;
};

/// The content of a worker's page (worker_link/page.h) at one instant.
struct WorkerLook {
    std::uint32_t local_rank = 0;
    std::uint32_t rank = 0;
    std::int64_t pid = 0;
    worker_link::Phase phase = worker_link::Phase::starting;
    std::uint64_t beats = 0;
    std::uint64_t round = 0;
    std::uint64_t step = 0;
    std::uint64_t operations = 0;  ///< Issued.
    std::uint64_t operations_done = 0;
    Duration longest{};    ///< See WorkerPage::longest.
    bool waiting = false;  ///< It waits in a collective.
    std::string section;   ///< The section, or the collective.
    worker_link::TransferKind transfer = worker_link::TransferKind::none;
    std::uint64_t transfer_bytes = 0;  ///< Of its present transfer.
    std::uint64_t transfer_done = 0;

    friend bool operator==(const WorkerLook&, const WorkerLook&) = default;
};

/// Reads the page of a live worker, which may change meanwhile. Any thread.
[[nodiscard]] WorkerLook look_at(const worker_link::WorkerPage& page, std::uint32_t local_rank,
                                 std::uint32_t rank, std::int64_t pid);
/// The position of a worker for the daemon, which finds the culprit of a hang.
[[nodiscard]] rendezvous::RankPosition position_of(const WorkerLook& look);

/// Finds the hanging worker of a node, from looks at all workers a few times a second. Pure: no
/// clock and no shared memory.
///
/// A worker makes no progress while its page stays the same: no beat, no collective begun or ended,
/// no byte of a transfer moved. The longest time of each kind of work (a step, a section by its
/// name) is known for each process, and its limit is a multiple of that time. A worker that waits
/// in a collective waits for another one, so it is not suspected. If all workers of the node wait
/// for longer than their limits, that is a shared hang, which counts once every node reports it
/// (`Hang::shared`). Suspended, starting and leaving workers never hang.
///
/// Time in which this process itself did not run (SIGSTOP, a suspended machine, an overloaded host)
/// does not count: a look that is late by more than an interval adds nothing.
class ProgressWatch {
   public:
    /// `interval`: the time from one look to the next.
    ProgressWatch(HangLimits limits, Duration interval);

    /// `looks`: one for each live worker that has a page, of `workers` in all, of which the ranks
    /// `finished` have ended with success. Returns the present hang, or nothing.
    [[nodiscard]] std::optional<rendezvous::Hang> look(Instant now,
                                                       std::span<const WorkerLook> looks,
                                                       std::size_t workers,
                                                       const rendezvous::RankSet& finished = {});

    /// The same for workers without the SDK, by their output: `bytes` so far, by local rank. Local
    /// rank 0 has `first_rank`. Silence counts from `reset_silence`. It is a hang once all workers
    /// have been silent for HangLimits::most. The hang names the rank with the longest silence of
    /// those that have not finished.
    [[nodiscard]] std::optional<rendezvous::Hang> look_at_output(
        Instant now, std::span<const std::uint64_t> bytes, std::uint32_t first_rank,
        const rendezvous::RankSet& finished = {});
    /// Workers have been started.
    void reset_silence();
    /// The time for which the worker has written nothing; zero if output is not watched.
    [[nodiscard]] Duration silence_of(std::uint32_t local_rank) const;

    /// The limit of the worker's present work. Duration::max(): no limit.
    [[nodiscard]] Duration limit_of(const WorkerLook& look) const;

    /// For how much longer a worker that must suspend may stay in user code: until it would count
    /// as hung. Zero for a worker that waits for others, has no state, or was not seen before.
    [[nodiscard]] Duration work_left(const WorkerLook& look) const;

   private:
    struct Worker {
        WorkerLook last;
        std::uint64_t first_step = 0;  ///< The committed step at the first look in its round.
        Duration still{};              ///< Time without a change.
    };

    /// The limit from the longest time of this kind of work.
    [[nodiscard]] Duration usual_limit(const WorkerLook& look) const;
    /// The time since the last look; zero if that look is too old.
    [[nodiscard]] Duration count(Instant now, std::optional<Instant>& last) const;
    void absorb(const WorkerLook& look, Duration elapsed);

    HangLimits limits_;
    Duration interval_;
    std::map<std::uint32_t, Worker> workers_;  ///< By local rank.
    std::optional<Instant> looked_at_;
    struct Output {
        std::uint64_t bytes = 0;
        Duration silence{};
    };
    std::optional<Instant> output_looked_at_;
    std::vector<Output> outputs_;  ///< By local rank.
};

/// The interval between looks: a fraction of the shortest limit, at most half a second.
[[nodiscard]] Duration look_interval(const HangLimits& limits);

}  // namespace regroup::agent
