// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "tests/chaos/cluster.h"
#include "tests/chaos/schedule.h"

namespace regroup::chaos {

/// Injects the faults of a schedule into a cluster, and heals them. One thread.
class Breaker {
   public:
    explicit Breaker(Cluster& cluster) : cluster_(cluster) {}

    /// Injects a fault. Chooses the node of a fault that aims at a standby. False if there was
    /// nothing to break, for example because the worker or the node is down.
    bool begin(std::size_t number, Fault& fault);
    /// Heals what `begin` broke, and restarts what it ended. Requires that `begin` has returned
    /// true. False if the process to restart has not ended yet; the caller tries again soon.
    [[nodiscard]] bool end(std::size_t number, const Fault& fault);

   private:
    bool act(std::size_t number, const Fault& fault);
    void heal(std::size_t number, const Fault& fault);
    bool stop(std::size_t number, pid_t pid);

    Cluster& cluster_;
    std::map<std::size_t, pid_t> stopped_;  ///< By the fault's number.
    std::optional<std::uint32_t> taker_;  ///< The standby at the time when the last node was ended.
};

}  // namespace regroup::chaos
