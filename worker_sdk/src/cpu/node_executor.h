// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "worker_sdk/src/cpu/mesh.h"
#include "worker_sdk/src/cpu/node_collectives.h"
#include "worker_sdk/src/cpu/operation.h"

namespace regroup::cpu {

/// Carries out a group's collectives in shared memory, in order of issue. Whoever waits for one
/// does it himself, which saves two changes of thread; what nobody waits for is done by a thread
/// that is there for it: large ones at once, so that they go on beside the caller's computation,
/// small ones soon.
///
/// Outlives its group where a Work does; by then it is stopped.
class NodeExecutor final : public WaitHelper {
   public:
    struct Listener {
        std::function<void(const Operation&)> complete;  ///< Has succeeded.
        std::function<void(GroupFailure)> fail;          ///< It is over; `stop` is to follow.
    };

    NodeExecutor(std::unique_ptr<NodeCollectives> node, Duration limit, Listener listener);
    ~NodeExecutor() override;

    void post(Operation operation);
    void help(const Work::State& state) override;
    [[nodiscard]] Regions& regions() noexcept { return node_->regions(); }
    /// The operation under way, or the next; empty if there is none.
    [[nodiscard]] std::string current() const;

    /// Ends everything, `orderly` if the others are to know that this rank leaves. Gives back what
    /// is not complete; afterwards no buffer is touched and nobody called. Once, from one thread.
    [[nodiscard]] std::vector<Operation> stop(bool orderly);

   private:
    void run();
    [[nodiscard]] bool carry_out_if_free(const Work::State* state);
    void release() noexcept;
    void carry_out_until(const Work::State* state);

    const std::unique_ptr<NodeCollectives> node_;
    const Duration limit_;
    const Listener listener_;

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Operation> queue_;  // guarded by mutex_; the first one is under way
    bool asleep_ = false;          // guarded by mutex_; the thread waits to be told
    bool running_ = false;         // guarded by mutex_; some thread carries operations out
    bool suspended_ = false;       // guarded by mutex_; the thread waits for the one at it
    bool over_ = false;            // guarded by mutex_; failed or stopped

    std::thread thread_;
};

}  // namespace regroup::cpu
