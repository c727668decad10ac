// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "worker_sdk/src/base/spin.h"
#include "worker_sdk/src/group/work.h"
#include "worker_sdk/src/net/wakeup.h"

namespace regroup::nccl {

/// The threads that wait for operations of a group. The watchdog looks often only while there are
/// any. A waiting thread spins for a moment before it sleeps.
class Waiters final : public WaitHelper {
   public:
    explicit Waiters(std::shared_ptr<net::Wakeup> watchdog);

    void help(const Work::State& state) override;

    /// The watchdog's thread: true if it may rest until a thread waits, which then rings.
    [[nodiscard]] bool may_rest() noexcept;

   private:
    [[nodiscard]] bool spin(const Work::State& state);

    const std::shared_ptr<net::Wakeup> watchdog_;
    std::atomic<int> count_ = 0;
    std::atomic<bool> is_resting_ = false;

    std::mutex mutex_;
    SpinPolicy spin_policy_;  // guarded by mutex_
};

}  // namespace regroup::nccl
