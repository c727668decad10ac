// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>
#include <cstddef>
#include <functional>
#include <memory>

#include "rendezvous/base/clock.h"

namespace regroup::files {

/// Blocks all signals of this thread, and so of those that it starts and of children that it makes,
/// as long as this object lives.
class AllSignalsBlocked {
   public:
    AllSignalsBlocked() {
        sigset_t all;
        sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~AllSignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    AllSignalsBlocked(const AllSignalsBlocked&) = delete;
    AllSignalsBlocked& operator=(const AllSignalsBlocked&) = delete;

   private:
    sigset_t before_{};
};

/// Runs tasks in order on one thread of its own, for work that may have to wait for a disk. The
/// thread starts with the first task and has all signals blocked.
///
/// A task must own all that it uses: if it does not return in time, its thread is left behind.
class Background {
   public:
    static constexpr std::size_t kTasksMax = 16;

    Background();
    /// Waits for the tasks, for at most `kEndLimit`.
    ~Background();
    Background(const Background&) = delete;
    Background& operator=(const Background&) = delete;

    /// Never waits. False if `kTasksMax` tasks wait already, or no thread can be started. Any
    /// thread may call it.
    bool post(std::function<void()> task);
    /// Waits until all tasks are done, or for `limit`. True if they are.
    bool drain(Duration limit);

    static constexpr Duration kEndLimit = std::chrono::seconds(2);

   private:
    struct State;
    static void run(const std::shared_ptr<State>& state);

    std::shared_ptr<State> state_;
};

}  // namespace regroup::files
