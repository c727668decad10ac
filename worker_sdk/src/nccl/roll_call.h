// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "worker_sdk/src/group/standing.h"
#include "worker_sdk/src/nccl/control_ring.h"
#include "worker_sdk/src/nccl/group_identity.h"

namespace regroup::nccl {

/// Finds out which ranks a collective waits for when its time is up. NCCL does not tell. So the
/// rank sends its own standing around the ring, and every rank that hears it sends its own.
/// Used by the watchdog's thread.
class RollCall {
   public:
    RollCall(ControlRing& ring, std::uint32_t rank) : ring_(ring), rank_(rank) {}

    /// Tells the other ranks how far this rank has come in the group of `scope`, and asks them.
    void tell(std::uint32_t scope, Standing standing, Instant now);
    /// Notes what another rank has told, and answers with this rank's standing in the same group.
    void hear(const Notice& notice, const Standing& own, Instant now);

    /// `failure`, of a collective that has expired in the group of `identity`, with the ranks that
    /// hold it up. Empty if ranks other than those in `departed` may still answer.
    [[nodiscard]] std::optional<GroupFailure> explain(
        const GroupFailure& failure, const GroupIdentity& identity,
        const std::map<std::uint32_t, Instant>& departed, Instant asked_at, Instant now);

   private:
    struct Scope {
        Standings standings{};
        Instant told_at{};
    };

    ControlRing& ring_;
    const std::uint32_t rank_;
    std::uint64_t version_ = 0;
    std::map<std::uint32_t, Scope> scopes_;
};

}  // namespace regroup::nccl
