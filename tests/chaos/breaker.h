// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "tests/chaos/cluster.h"
#include "tests/chaos/schedule.h"

namespace regroup::chaos {

/// Does to a cluster what a schedule says, and undoes it. One thread.
class Breaker {
   public:
    explicit Breaker(Cluster& cluster) : cluster_(cluster) {}

    /// Finds a fault that aims at a standby its node. False if there was nothing to break: a worker
    /// that is not there, a node that is down.
    bool begin(std::size_t number, Fault& fault);
    /// Heals what `begin` broke; starts again what it ended. After `begin` has said true. False if
    /// what is to be started again has not ended yet: to be called again, soon.
    [[nodiscard]] bool end(std::size_t number, const Fault& fault);

   private:
    bool act(std::size_t number, const Fault& fault);
    void heal(std::size_t number, const Fault& fault);
    bool stop(std::size_t number, pid_t pid);

    Cluster& cluster_;
    std::map<std::size_t, pid_t> stopped_;  ///< By the fault's number.
    std::optional<std::uint32_t> taker_;    ///< Who was a standby when the last node was ended.
};

}  // namespace regroup::chaos
