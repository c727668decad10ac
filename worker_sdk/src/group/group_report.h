// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "rendezvous/base/clock.h"
#include "rendezvous/worker_link/collectives_writer.h"
#include "worker_sdk/src/group/standing.h"

namespace regroup {

/// Tells the agent which operations of one group this rank is in: see collectives_page.h. Without
/// an agent it does nothing. Any thread; collectives are issued, and end, one after the other.
class GroupReport {
   public:
    struct Identity {
        worker_link::CollectiveBackend backend = worker_link::CollectiveBackend::other;
        std::string_view name{};
        std::span<const std::uint32_t> ranks{};  ///< In the world.
        std::uint32_t rank = 0;                  ///< In the group.
        bool knows_starts = false;
    };

    explicit GroupReport(const Identity& identity);

    /// Returns the number of the operation for started() and completed().
    std::uint64_t issued(const Signature& signature, Instant at) noexcept;
    void started(OperationKind kind, std::uint64_t number, Instant at) noexcept;
    void completed(OperationKind kind, std::uint64_t number, Instant at) noexcept;

   private:
    worker_link::GroupWriter writer_;
};

}  // namespace regroup
