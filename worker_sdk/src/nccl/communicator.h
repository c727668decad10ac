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

/// What NCCL answered, with its own words for it.
struct CommReport {
    CommState state = CommState::ready;
    ncclResult_t result = ncclSuccess;
    std::string text{};
};

/// One non-blocking NCCL communicator behind its owner lock: NCCL allows no two threads in calls on
/// one communicator, and none at all during or after ncclCommAbort. Every call here takes the lock,
/// returns at once, and is `gone` when the communicator is. Only `finish_leaving` and `abort_all`
/// may take their time, for ever if a CUDA graph holds operations: they are for the Reaper, and
/// hold no lock meanwhile.
///
/// After a call that says `in_progress`, NCCL works on in a thread of its own; nothing else may be
/// asked of the communicator until `poll` says `ready`. Its user keeps to that.
class Communicator {
   public:
    explicit Communicator(const NcclApi& api) noexcept : api_(api) {}
    /// Requires that it has left or was aborted, or never began.
    ~Communicator();
    Communicator(const Communicator&) = delete;
    Communicator& operator=(const Communicator&) = delete;

    /// Begins to connect `rank` of `world_size`; several ids spread the work of meeting.
    CommReport begin(std::span<ncclUniqueId> ids, int world_size, int rank);
    /// Begins to make a child of those ranks that pass the same `color`, in the order of `key`. It
    /// is there when `poll` says `ready`; with NCCL_SPLIT_NOCOLOR, none is.
    CommReport begin_split(int color, int key);
    /// Makes `heir`, which never began, the child; false if this is given up, and the child with
    /// it.
    [[nodiscard]] bool hand_child_to(Communicator& heir);

    /// Makes the calls of `body` as one group.
    CommReport launch(const std::function<ncclResult_t(ncclComm_t)>& body);
    /// Any other single call.
    CommReport call(const std::function<ncclResult_t(ncclComm_t)>& body);
    CommReport poll();
    /// As `poll`, but `ready` if another thread is in a call just now: it will see for itself.
    CommReport glance();

    CommReport begin_leaving();
    /// Requires that `poll` says `ready` after begin_leaving.
    void finish_leaving();

    /// Gives several communicators up: tells all of them to stop before any is freed, since freeing
    /// one may wait for a kernel of another. A child that a failed split has left behind goes with
    /// its parent. What is gone already is left alone.
    static void abort_all(const NcclApi& api, std::span<Communicator* const> communicators);

    [[nodiscard]] bool is_gone();

   private:
    [[nodiscard]] CommReport report(ncclResult_t result);
    [[nodiscard]] CommReport poll_locked();
    /// What is to be freed by the one caller that gets it, null if there is nothing.
    [[nodiscard]] ncclComm_t let_go();

    const NcclApi& api_;
    std::mutex mutex_;
    ncclComm_t comm_ = nullptr;  // guarded by mutex_
    /// Where NCCL's thread writes a child; a place of its own, for it outlives failed attempts.
    ncclComm_t child_ = nullptr;
    bool gone_ = false;  // guarded by mutex_
};

}  // namespace regroup::nccl
