// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "agent/core/worker.h"

namespace regroup::agent {

/// All workers of a node, by local rank. Changes their states and returns the changed ones; the
/// owner sends the messages.
class Workers {
   public:
    using LocalRanks = std::vector<std::uint32_t>;  ///< Ascending.

    explicit Workers(std::uint32_t count) : workers_(count) {}

    [[nodiscard]] std::uint32_t size() const noexcept {
        return static_cast<std::uint32_t>(workers_.size());
    }
    [[nodiscard]] auto begin() const noexcept { return workers_.begin(); }
    [[nodiscard]] auto end() const noexcept { return workers_.end(); }
    [[nodiscard]] Worker& operator[](std::uint32_t local_rank) { return workers_[local_rank]; }
    [[nodiscard]] const Worker& operator[](std::uint32_t local_rank) const {
        return workers_[local_rank];
    }

    [[nodiscard]] bool any_alive() const { return std::ranges::any_of(workers_, &Worker::alive); }
    [[nodiscard]] bool any_holds_state() const {
        return std::ranges::any_of(workers_, &Worker::holds_state);
    }
    [[nodiscard]] bool any_can_save() const {
        return std::ranges::any_of(workers_,
                                   [](const Worker& w) { return w.holds_state() && w.elastic; });
    }
    [[nodiscard]] bool all_out() const { return std::ranges::all_of(workers_, &Worker::is_out); }
    [[nodiscard]] bool all_elastic() const {
        return std::ranges::all_of(workers_,
                                   [](const Worker& w) { return w.alive() && w.elastic; });
    }
    /// True if every live worker asks in each step whether to stop.
    [[nodiscard]] bool all_stop() const {
        return any_alive() && std::ranges::all_of(workers_, [](const Worker& w) {
                   return !w.alive() || (w.stops && !w.elastic);
               });
    }
    /// The highest step of suspended workers.
    [[nodiscard]] std::uint64_t held_step() const;

    /// A round begins: all workers get places. The missing ones must be launched.
    struct Places {
        LocalRanks assigned, launched;
    };
    [[nodiscard]] Places assign(RoundId round);
    /// Marks the missing workers as idle. They must be started ahead of a round.
    [[nodiscard]] LocalRanks start_ahead();
    /// The next order of each worker. `signal`: for workers that must end.
    struct Orders {
        LocalRanks suspended, terminated, killed;
    };
    [[nodiscard]] Orders order(Wanted wanted, int signal);
    /// Marks the training workers as suspending: they were told to stop at a step on which all
    /// ranks agree.
    void stop_at_agreed_step();
    /// Marks the workers that are not out of their round as ending, for SIGKILL.
    [[nodiscard]] LocalRanks force();

   private:
    std::vector<Worker> workers_;
};

}  // namespace regroup::agent
