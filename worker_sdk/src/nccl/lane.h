// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "rendezvous/base/clock.h"
#include "worker_sdk/src/nccl/backend.h"
#include "worker_sdk/src/nccl/communicator.h"
#include "worker_sdk/src/nccl/gpu_memory.h"
#include "worker_sdk/src/nccl/group_identity.h"
#include "worker_sdk/src/nccl/in_flight.h"
#include "worker_sdk/src/nccl/issuer.h"
#include "worker_sdk/src/nccl/reaper.h"

namespace regroup::nccl {

/// One communicator with its streams, its memory and its operations in flight.
///
/// The destructor of a lane does not block: the reaper frees its streams and memory.
class Lane {
   public:
    [[nodiscard]] static std::shared_ptr<Lane> make(const Backend& backend, GroupIdentity identity,
                                                    std::shared_ptr<net::Wakeup> watchdog,
                                                    const std::shared_ptr<Reaper>& reaper);

    [[nodiscard]] const Backend& backend() const noexcept { return backend_; }
    [[nodiscard]] const GroupIdentity& identity() const noexcept { return identity_; }
    [[nodiscard]] Communicator& communicator() noexcept { return *communicator_; }
    [[nodiscard]] InFlight& in_flight() noexcept { return in_flight_; }
    [[nodiscard]] GpuMemory& memory() noexcept { return memory_; }
    [[nodiscard]] Issuer& issuer() noexcept { return issuer_; }

    /// Makes the call `begin`, which waits for other ranks, and waits for its end: `ready`,
    /// `failed`, `gone`, or still `in_progress` at the deadline. A blocking call is made in
    /// a thread of its own, and the end of the lane ends it.
    using Begin = std::function<CommReport(Communicator& communicator)>;
    [[nodiscard]] CommReport complete(Begin begin, Instant deadline);
    /// Makes a child of the communicator, as Communicator::begin_split, and waits for it as long as
    /// an operation may take. All ranks must call it, so it counts as a collective. The caller's
    /// thread.
    [[nodiscard]] CommReport split(int color, int key);
    /// Ends the child of the last split, in the background: for a rank that no child was made for.
    void drop_child();
    /// The watchdog's thread: InFlight::check with what the communicator tells.
    [[nodiscard]] std::optional<GroupFailure> check(Instant now);

    // The reaper.

    /// Leaves in order, or aborts at the limit. Requires that nothing is in flight and that the
    /// watchdog has removed the lane.
    void leave();
    /// Aborts the communicators of `lanes`, which have ended, together.
    static void abort_all(const NcclApi& api, std::span<const std::shared_ptr<Lane>> lanes);

   private:
    Lane(const Backend& backend, GroupIdentity identity, std::shared_ptr<net::Wakeup> watchdog,
         std::shared_ptr<Reaper> reaper);

    const Backend backend_;
    const GroupIdentity identity_;
    const std::shared_ptr<Reaper> reaper_;
    const std::shared_ptr<Communicator> communicator_;
    InFlight in_flight_;
    GpuMemory memory_;
    Issuer issuer_;
};

}  // namespace regroup::nccl
