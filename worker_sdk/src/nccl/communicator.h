// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <nccl.h>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "worker_sdk/src/nccl/nccl_api.h"

namespace regroup::nccl {

/// The state of a communicator, which NCCL tells only when asked.
enum class CommState { ready, in_progress, failed, gone };

/// The answer of NCCL, with NCCL's own text.
struct CommReport {
    CommState state = CommState::ready;
    ncclResult_t result = ncclSuccess;
    std::string text{};
};

/// One non-blocking NCCL communicator behind its owner lock: NCCL allows no two threads in calls on
/// one communicator, and none at all during or after ncclCommAbort. Every call here takes the lock,
/// returns at once, and is `gone` when the communicator is. Only `finish_leaving` and `abort_all`
/// may block, without a limit if a CUDA graph holds operations. Only the Reaper calls them, and
/// they hold no lock meanwhile.
///
/// After a call that says `in_progress`, NCCL continues in its own thread. The caller must make no
/// other call on the communicator until `poll` says `ready`.
class Communicator {
   public:
    explicit Communicator(const NcclApi& api) noexcept : api_(api) {}
    /// Requires that it has left or was aborted, or never began.
    ~Communicator();
    Communicator(const Communicator&) = delete;
    Communicator& operator=(const Communicator&) = delete;

    /// Begins to connect `rank` of `world_size`; several ids spread the work of the bootstrap.
    CommReport begin(std::span<ncclUniqueId> ids, int world_size, int rank);
    /// Begins to make a child of those ranks that pass the same `color`, in the order of `key`. It
    /// is there when `poll` says `ready`. Requires a color: if a split fails, NCCL writes through a
    /// null pointer in every rank that passed NCCL_SPLIT_NOCOLOR.
    CommReport begin_split(int color, int key);
    /// Moves the child into `heir`, which never began. False if this communicator and its child
    /// were aborted.
    [[nodiscard]] bool hand_child_to(Communicator& heir);

    /// Makes the calls of `body` as one group.
    CommReport launch(const std::function<ncclResult_t(ncclComm_t)>& body);
    /// Any other single call.
    CommReport call(const std::function<ncclResult_t(ncclComm_t)>& body);
    CommReport poll();
    /// As `poll`, but `ready` if another thread is in a call: that thread sees errors itself.
    CommReport glance();

    CommReport begin_leaving();
    /// Requires that `poll` says `ready` after begin_leaving.
    void finish_leaving();

    /// Aborts several communicators: tells all of them to stop before it frees any, since freeing
    /// one may wait for a kernel of another. Also frees the child that a failed split has left in
    /// its parent. Ignores communicators that are gone.
    static void abort_all(const NcclApi& api, std::span<Communicator* const> communicators);

    [[nodiscard]] bool is_gone();

   private:
    [[nodiscard]] CommReport report(ncclResult_t result);
    [[nodiscard]] CommReport poll_locked();
    /// Returns the communicator to exactly one caller, which frees it; null if there is none.
    [[nodiscard]] ncclComm_t let_go();

    const NcclApi& api_;
    std::mutex mutex_;
    ncclComm_t comm_ = nullptr;  // guarded by mutex_
    /// NCCL's thread writes a child here, possibly after a failed attempt has ended.
    ncclComm_t child_ = nullptr;
    bool gone_ = false;  // guarded by mutex_
};

}  // namespace regroup::nccl
