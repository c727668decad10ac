// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/nccl/waiters.h"

#include <thread>
#include <utility>

namespace regroup::nccl {
namespace {

class Counted {
   public:
    explicit Counted(std::atomic<int>& count) noexcept : count_(count) { ++count_; }
    ~Counted() { --count_; }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;

   private:
    std::atomic<int>& count_;
};

}  // namespace

Waiters::Waiters(std::shared_ptr<net::Wakeup> watchdog)
    : watchdog_(std::move(watchdog)), spin_policy_(std::thread::hardware_concurrency() <= 1) {}

void Waiters::help(const Work::State& state) {
    const Counted counted(count_);
    if (is_resting_.exchange(false)) {
        watchdog_->ring();
    }
    if (!spin(state)) {
        state.await_done();
    }
}

bool Waiters::may_rest() noexcept {
    is_resting_ = true;
    if (count_ == 0) {
        return true;
    }
    is_resting_ = false;
    return false;
}

bool Waiters::spin(const Work::State& state) {
    {
        const std::lock_guard lock(mutex_);
        if (!spin_policy_.is_worth_it()) {
            return false;
        }
    }
    const Instant began = SteadyClock().now();
    Duration waited{};
    bool is_done = state.done();
    for (; !is_done && waited < SpinPolicy::kLimit; is_done = state.done()) {
        spin_policy_.pause();
        waited = SteadyClock().now() - began;
    }
    const std::lock_guard lock(mutex_);
    spin_policy_.report(waited);
    return is_done;
}

}  // namespace regroup::nccl
