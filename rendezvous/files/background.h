// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "rendezvous/base/clock.h"

namespace regroup::files {

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
