// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/chaos/step_log.h"

namespace regroup::bench {

/// The steps of a running job, from the logs of its workers.
class LiveSteps {
   public:
    using Time = std::chrono::steady_clock::time_point;

    explicit LiveSteps(std::string folder) : folder_(std::move(folder)) {}

    /// Waits for a round that began after `since` with `world_size` ranks (0: any number). Returns
    /// when its last rank had its first step; nothing after `limit`.
    [[nodiscard]] std::optional<Time> await_round(Time since, std::uint32_t world_size,
                                                  std::chrono::milliseconds limit);
    /// Number of steps that were first applied in [from, to).
    [[nodiscard]] std::size_t steps_between(Time from, Time to);
    /// The longest time without a step between the two.
    [[nodiscard]] std::chrono::duration<double> longest_pause(Time from, Time to);

   private:
    struct File {
        std::size_t bytes = 0;
        std::vector<chaos::Record> records;
    };

    void read();
    [[nodiscard]] std::optional<Time> find_round(Time since, std::uint32_t world_size) const;
    [[nodiscard]] std::vector<std::int64_t> times(Time from, Time to);

    std::string folder_;
    std::map<std::string, File> files_;
};

}  // namespace regroup::bench
