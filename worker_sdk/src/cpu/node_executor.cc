// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/node_executor.h"

#include <regroup/error.h>

#include <exception>
#include <iterator>
#include <utility>

#include "worker_sdk/src/helper_thread.h"

namespace regroup::cpu {
namespace {

/// From here on an operation is worth a thread's wake-up.
constexpr std::size_t kLargeBytes = std::size_t{1} << 20U;
/// How long a small one is left to whoever may come to wait for it, and how often the thread looks
/// while operations are coming in; waking it for each would cost more than most take.
constexpr Duration kGrace = std::chrono::microseconds(500);
/// So many looks in vain, and the thread sleeps until it is told.
constexpr int kLooksMax = 20;

bool is_large(const Operation& operation) {
    return std::max(operation.buffer.bytes(), operation.input.bytes()) >= kLargeBytes;
}

}  // namespace

NodeExecutor::NodeExecutor(std::unique_ptr<NodeCollectives> node, Duration limit, Listener listener)
    : node_(std::move(node)), limit_(limit), listener_(std::move(listener)) {
    thread_ = start_helper_thread("regroup-node", [this] { run(); });
}

NodeExecutor::~NodeExecutor() {
    if (thread_.joinable()) {
        static_cast<void>(stop(false));
    }
}

void NodeExecutor::post(Operation operation) {
    const bool large = is_large(operation);
    bool wake = false;
    {
        const std::lock_guard lock(mutex_);
        queue_.push_back(std::move(operation));
        wake = asleep_ || large;
        asleep_ = false;
    }
    if (wake) {
        changed_.notify_one();
    }
}

void NodeExecutor::help(const Work::State& state) {
    // Nobody waits here for the other thread: it does what this one would do.
    const std::unique_lock running(running_, std::try_to_lock);
    if (running.owns_lock()) {
        carry_out_until(&state);
    }
}

/// Requires `running_`. Without a state, until the queue is empty.
void NodeExecutor::carry_out_until(const Work::State* state) {
    while (state == nullptr || !state->done()) {
        const Operation* operation = nullptr;
        {
            const std::lock_guard lock(mutex_);
            if (queue_.empty() || over_) {
                return;
            }
            operation = &queue_.front();  // Stays where it is: others only add behind it.
        }
        std::optional<GroupFailure> failure;
        try {
            node_->carry_out(*operation, limit_);
        } catch (GroupFailure& caught) {
            failure = std::move(caught);
            failure->operation = describe(operation->signature);
        } catch (const std::exception& error) {
            failure = {Errc::system, error.what(), describe(operation->signature)};
        }
        if (failure) {
            {
                const std::lock_guard lock(mutex_);
                over_ = true;
            }
            return listener_.fail(std::move(*failure));
        }
        Operation done;
        {
            const std::lock_guard lock(mutex_);
            done = std::move(queue_.front());
            queue_.pop_front();
        }
        listener_.complete(done);
    }
}

void NodeExecutor::run() {
    std::unique_lock lock(mutex_);
    for (int looks = 0; !over_;) {
        const bool urgent = !queue_.empty() && is_large(queue_.front());
        const Instant now = SteadyClock().now();
        if (urgent || (!queue_.empty() && now - queue_.front().issued_at >= kGrace)) {
            lock.unlock();
            bool ran = false;
            {
                const std::unique_lock running(running_, std::try_to_lock);
                ran = running.owns_lock();
                if (ran) {
                    carry_out_until(nullptr);
                }
            }
            lock.lock();
            looks = 0;
            if (!ran && !over_) {
                changed_.wait_for(lock, kGrace);
            }
        } else if (queue_.empty() && looks >= kLooksMax) {
            asleep_ = true;
            changed_.wait(lock, [this] { return !asleep_ || over_; });
            looks = 0;
        } else {
            looks = queue_.empty() ? looks + 1 : 0;
            changed_.wait_for(lock, kGrace);
        }
    }
}

std::string NodeExecutor::current() const {
    const std::lock_guard lock(mutex_);
    return queue_.empty() ? "" : describe(queue_.front().signature);
}

std::vector<Operation> NodeExecutor::stop(bool orderly) {
    {
        const std::lock_guard lock(mutex_);
        over_ = true;
    }
    changed_.notify_one();
    if (orderly) {
        node_->leave();
    }
    node_->stop();
    thread_.join();
    const std::lock_guard running(running_);  // A waiting caller may still be at it.
    std::vector<Operation> left;
    const std::lock_guard lock(mutex_);
    std::move(queue_.begin(), queue_.end(), std::back_inserter(left));
    queue_.clear();
    return left;
}

}  // namespace regroup::cpu
