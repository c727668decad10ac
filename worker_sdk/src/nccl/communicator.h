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

#include "rendezvous/base/clock.h"
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

/// One NCCL communicator behind its owner lock: NCCL allows no two threads in calls on one
/// communicator, and none after ncclCommAbort. Every call here takes the lock, and is `gone` when
/// the communicator is. `finish_leaving` and `abort_all` may block, without a limit if a CUDA graph
/// holds operations. Only the Reaper calls them.
///
/// Calls of a non-blocking communicator return at once, and NCCL continues in its own thread. The
/// caller must make no other call on the communicator until `poll` says `ready`. The result of the
/// call itself does not tell whether NCCL continues: ncclCommSplit says success at once.
///
/// Calls of a blocking communicator may wait for other ranks. `abort_all` ends such a wait: it does
/// not take the owner lock before it has told NCCL to stop.
class Communicator {
   public:
    explicit Communicator(const NcclApi& api, bool blocking = false) noexcept
        : api_(api), blocking_(blocking) {}
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
    /// Polls until the communicator is not `in_progress` any more, or until the deadline.
    CommReport await_ready(Instant deadline);
    /// As `poll`, but `ready` if another thread is in a call: that thread sees errors itself.
    CommReport glance();

    /// Whether it has `world_size` ranks and this one is `rank`. True if it is gone.
    [[nodiscard]] bool has_place(int rank, int world_size);

    CommReport begin_leaving();
    /// Requires that `poll` says `ready` after begin_leaving.
    void finish_leaving();

    /// Aborts several communicators: tells all of them to stop before it frees any, since freeing
    /// one may wait for a kernel of another. Also frees the child that a failed split has left in
    /// its parent. Ignores communicators that are gone.
    static void abort_all(const NcclApi& api, std::span<Communicator* const> communicators);

    [[nodiscard]] bool is_gone();

   private:
    [[nodiscard]] ncclConfig_t config() const;
    [[nodiscard]] CommReport report(ncclResult_t result);
    [[nodiscard]] CommReport poll_locked();
    /// Makes the calls of `body` on the communicator under the owner lock.
    template <class Body>
    CommReport locked(const Body& body);
    /// True for exactly one caller, which frees the communicator.
    [[nodiscard]] bool let_go();
    /// Waits until no thread is in a call.
    void await_calls() { const std::lock_guard lock(calls_); }
    /// The communicator, which a call that another thread is in may be about to make. Null if there
    /// is none.
    [[nodiscard]] ncclComm_t await_made();

    const NcclApi& api_;
    const bool blocking_;
    std::mutex calls_;  // The owner lock, held during a call of NCCL. Locked before mutex_.
    ncclComm_t comm_ = nullptr;  // guarded by calls_, but await_made reads it during a call
    /// NCCL's thread writes a child here, possibly after a failed attempt has ended.
    ncclComm_t child_ = nullptr;
    std::mutex mutex_;
    bool gone_ = false;  // guarded by mutex_
};

}  // namespace regroup::nccl
