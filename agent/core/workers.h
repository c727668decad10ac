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
    [[nodiscard]] Worker& operator[](std::uint32_t local_rank) { return workers_[local_rank]; }
    [[nodiscard]] const Worker& operator[](std::uint32_t local_rank) const {
        return workers_[local_rank];
    }

    [[nodiscard]] bool any_alive() const { return any(&Worker::alive); }
    [[nodiscard]] bool any_holds_state() const { return any(&Worker::holds_state); }
    [[nodiscard]] bool all_out() const {
        return std::all_of(workers_.begin(), workers_.end(),
                           [](const Worker& w) { return w.is_out(); });
    }
    [[nodiscard]] bool all_elastic() const {
        return std::all_of(workers_.begin(), workers_.end(),
                           [](const Worker& w) { return w.alive() && w.elastic; });
    }
    [[nodiscard]] bool any_can_save() const {
        return std::any_of(workers_.begin(), workers_.end(),
                           [](const Worker& w) { return w.holds_state() && w.elastic; });
    }
    /// The highest step of suspended workers.
    [[nodiscard]] std::uint64_t held_step() const;

    /// A round begins: all workers get places. The missing ones must be launched.
    struct Places {
        LocalRanks assigned, launched;
    };
    [[nodiscard]] Places begin(RoundId round);
    /// Marks the missing workers as idle. They must be started ahead of a round.
    [[nodiscard]] LocalRanks start_ahead();
    /// The next order of each worker. `signal`: for workers that must end.
    struct Orders {
        LocalRanks suspended, terminated, killed;
    };
    [[nodiscard]] Orders order(Wanted wanted, int signal);
    /// Marks the workers that are not out of their round as ending, for SIGKILL.
    [[nodiscard]] LocalRanks force();

   private:
    [[nodiscard]] bool any(bool (Worker::*is)() const noexcept) const {
        return std::any_of(workers_.begin(), workers_.end(),
                           [is](const Worker& w) { return (w.*is)(); });
    }

    std::vector<Worker> workers_;
};

}  // namespace regroup::agent
