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

/// For how long a worker may stand still.
struct HangLimits {
    /// What has been seen to take a time may take so many times that.
    double factor = 5;
    /// But no limit is shorter than this.
    Duration floor = std::chrono::seconds(10);
    /// The limit of what was not yet seen: the first step of a process or of a round, a section's
    /// first time. Of forming a group always, which takes as long as a new process takes to start.
    Duration first = std::chrono::minutes(10);
    /// No limit is longer than this; also how long workers without the SDK may write nothing.
    std::optional<Duration> most;
};

/// What a worker's page (worker_link/page.h) said at one instant.
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
    bool waiting = false;  ///< For others, in a collective.
    std::string section;   ///< Or the collective.

    friend bool operator==(const WorkerLook&, const WorkerLook&) = default;
};

/// Reads the page of a living worker, which may change meanwhile. Any thread.
[[nodiscard]] WorkerLook look_at(const worker_link::WorkerPage& page, std::uint32_t local_rank,
                                 std::uint32_t rank, std::int64_t pid);
/// The same for the daemon, which tells from it who holds up whom.
[[nodiscard]] rendezvous::RankPosition position_of(const WorkerLook& look);

/// Tells which of a node's workers hangs, from looks at all of them, a few times a second. Pure: no
/// clock, no memory of anybody else's.
///
/// A worker stands still while it looks the same: no beat, no collective begun or ended. How long
/// each kind of work took before (a step, a section by its name) is known for each process, and
/// several times that is its limit. One that waits in a collective is held up by another, and is
/// not suspected; only if all of the node do, for longer than they may, nothing moves here, and
/// that is said as a hang that counts once every node says so (`Hang::shared`). Suspended and
/// starting workers, and those that leave, never hang.
///
/// Time in which this process itself did not run (SIGSTOP, a machine that was suspended, a host
/// under a load that stops everything) is counted for nobody: a look that is late by more than an
/// interval adds nothing.
class ProgressWatch {
   public:
    /// `interval`: from one look to the next.
    ProgressWatch(HangLimits limits, Duration interval);

    /// `looks`: of the node's workers that have a page, of `workers` in all. Returns what hangs as
    /// of now, or nothing; so the word is taken back when things move again.
    [[nodiscard]] std::optional<rendezvous::Hang> look(Instant now,
                                                       std::span<const WorkerLook> looks,
                                                       std::size_t workers);

    /// The same for workers without the SDK, by what they write: `bytes` so far, of each by its
    /// local rank, the first of which has `first_rank`. Silence counts from `reset_silence`, and is
    /// a hang once all have been silent for HangLimits::most: named is who has been so longest.
    [[nodiscard]] std::optional<rendezvous::Hang> look_at_output(
        Instant now, std::span<const std::uint64_t> bytes, std::uint32_t first_rank);
    /// Workers have been started.
    void reset_silence();
    /// For how long the worker has written nothing; zero if that is not looked at.
    [[nodiscard]] Duration silence_of(std::uint32_t local_rank) const;

    /// How long the worker may be at what it does; Duration::max() if it may for ever.
    [[nodiscard]] Duration limit_of(const WorkerLook& look) const;

    /// For how much longer a worker that is to suspend may be at work of its own, where it cannot
    /// hear of that: until it would count as hung. Zero for one that waits for others, or has
    /// nothing to lose, or was not looked at before.
    [[nodiscard]] Duration work_left(const WorkerLook& look) const;

   private:
    struct Worker {
        WorkerLook last;
        std::uint64_t first_step = 0;  ///< Committed when it was first seen in its round.
        Duration still{};              ///< For how long it has looked like this.
    };

    /// By what was seen of its kind.
    [[nodiscard]] Duration usual_limit(const WorkerLook& look) const;
    /// The time since the last look, as far as it counts.
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

/// How often to look: a few times within the shortest limit, at most every half second.
[[nodiscard]] Duration look_interval(const HangLimits& limits);

}  // namespace regroup::agent
