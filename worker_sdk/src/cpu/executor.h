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

#include "worker_sdk/src/cpu/operation.h"

namespace regroup::cpu {

/// Carries out collectives.
class CollectiveEngine {
   public:
    virtual ~CollectiveEngine() = default;
    /// Returns when the collective, whose time begins `now`, is complete on this rank. One thread
    /// at a time. Throws GroupFailure.
    virtual void carry_out(Operation& operation, Instant now) = 0;
    /// Makes `carry_out` fail soon, wherever it waits, now and in future. Tells the ranks that
    /// share memory whether this rank leaves in order, or has failed. Any thread; may be repeated.
    virtual void stop(bool orderly) noexcept = 0;
};

/// Executes a group's collectives, in order of issue. A thread that waits for a collective executes
/// it, which saves two context switches. A helper thread executes the others:
/// large ones at once, so that they overlap with the caller's computation, small ones soon.
///
/// Outlives its group if a Work does; the group stops it first.
class Executor final : public WaitHelper {
   public:
    struct Listener {
        /// The operation's turn has come.
        std::function<void(const Operation&, Instant now)> start;
        std::function<void(const Operation&)> complete;  ///< The operation has succeeded.
        std::function<void(GroupFailure)> fail;          ///< The group calls `stop` next.
    };

    Executor(std::shared_ptr<CollectiveEngine> engine, Listener listener);
    ~Executor() override;

    void post(Operation operation);
    void help(const Work::State& state) override;
    /// The operation under way, or the next; empty if there is none.
    [[nodiscard]] std::string current() const;

    /// Ends all operations and returns the incomplete ones. With `orderly`, tells the other ranks
    /// that this rank leaves. Afterwards the executor accesses no buffer and calls no callback.
    /// Call once, from one thread.
    [[nodiscard]] std::vector<Operation> stop(bool orderly);

   private:
    void run();
    [[nodiscard]] bool carry_out_if_free(const Work::State* state);
    void release() noexcept;
    void carry_out_until(const Work::State* state);

    const std::shared_ptr<CollectiveEngine> engine_;
    const Listener listener_;

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Operation> queue_;  // guarded by mutex_; the first one is under way
    bool asleep_ = false;          // guarded by mutex_; the thread waits for a notification
    bool running_ = false;         // guarded by mutex_; some thread executes operations
    bool suspended_ = false;       // guarded by mutex_; the thread waits for the executing one
    bool over_ = false;            // guarded by mutex_; failed or stopped

    std::thread thread_;
};

}  // namespace regroup::cpu
