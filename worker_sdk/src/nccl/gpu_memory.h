// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/tensor_view.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "worker_sdk/src/nccl/backend.h"
#include "worker_sdk/src/nccl/communicator.h"
#include "worker_sdk/src/nccl/group_identity.h"
#include "worker_sdk/src/nccl/in_flight.h"
#include "worker_sdk/src/nccl/reaper.h"

namespace regroup::nccl {

/// A rank's message to the others before all of them do the same thing.
struct Proposal {
    std::uint64_t digest = 0;   ///< Of what it is about to do.
    std::uint64_t is_able = 0;  ///< 1: its own part has succeeded so far.
};

/// The memory that a group has on its GPU: its own, and that of the Buffers of callers. Any thread.
class GpuMemory {
   public:
    /// On the current device. All arguments must outlive it. Throws Error `system`.
    GpuMemory(const Backend& backend, const GroupIdentity& identity, Communicator& communicator,
              const InFlight& in_flight, std::shared_ptr<Reaper> reaper);
    ~GpuMemory();
    GpuMemory(const GpuMemory&) = delete;
    GpuMemory& operator=(const GpuMemory&) = delete;

    /// One word for barriers.
    [[nodiscard]] void* barrier_word() const noexcept { return own_; }
    /// Room for a Proposal of each rank.
    [[nodiscard]] Proposal* proposals() const noexcept;
    /// The Proposal of this rank on the host. The stream may read it after the call that put it
    /// there has thrown.
    [[nodiscard]] Proposal& proposal() noexcept { return proposal_; }
    /// Zeroed, registered if NCCL can. The Buffer shares `memory`. Throws Error `system`.
    [[nodiscard]] static Buffer allocate(std::shared_ptr<GpuMemory> memory, std::size_t bytes);
    /// The communicator is about to leave.
    void end_registrations();
    /// The communicator and its kernels have ended.
    void note_gone();

   private:
    /// Memory as it was allocated.
    struct Block {
        void* base = nullptr;
        void* data = nullptr;
        bool by_nccl = false;
    };
    struct Owner;

    [[nodiscard]] Block allocate_block(std::size_t bytes) const;
    void register_block(const Block& block, std::size_t bytes);
    void deregister(void* handle);
    void give_back(const Block& block);
    static void free_blocks(const Backend& backend, std::span<const Block> blocks) noexcept;

    const Backend backend_;
    const GroupIdentity& identity_;
    Communicator& communicator_;
    const InFlight& in_flight_;
    const std::shared_ptr<Reaper> reaper_;
    void* own_ = nullptr;  // The barrier word, and after it the proposals.
    Proposal proposal_;

    std::mutex mutex_;                      // Guards the rest. Locked before that of in_flight_.
    std::map<void*, void*> registrations_;  // of memory, NCCL's handles
    std::vector<Block> kept_;  // given back, but an operation in flight may still use it
    bool leaving_ = false;
    bool gone_ = false;  // nothing of NCCL will touch memory any more
};

}  // namespace regroup::nccl
