// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/executor.h"

#include <regroup/error.h>

#include <cfenv>
#include <exception>
#include <iterator>
#include <utility>

#include "worker_sdk/src/base/helper_thread.h"

namespace regroup::cpu {
namespace {

/// From this size on, an operation is worth waking the thread.
constexpr std::size_t kLargeBytes = std::size_t{1} << 20U;
/// How long the thread leaves a small operation to a caller that may wait for it, and the interval
/// at which the thread checks the queue. A wake-up for each would cost more than most operations
/// take.
constexpr Duration kGrace = std::chrono::microseconds(500);
/// The interval between two wake-ups of threads that must stop.
constexpr Duration kStirInterval = std::chrono::milliseconds(1);
/// After so many checks without work the thread sleeps until it is notified.
constexpr int kLooksMax = 20;

/// The floating-point environment that every thread begins with, while it lives: results must not
/// depend on the rounding and flushing modes of the executing thread.
class DefaultArithmetic {
   public:
    DefaultArithmetic() {
        std::fegetenv(&before_);
        std::fesetenv(FE_DFL_ENV);
    }
    ~DefaultArithmetic() { std::fesetenv(&before_); }
    DefaultArithmetic(const DefaultArithmetic&) = delete;
    DefaultArithmetic& operator=(const DefaultArithmetic&) = delete;

   private:
    std::fenv_t before_{};
};

}  // namespace

Executor::Executor(std::shared_ptr<CollectiveEngine> engine, Listener listener)
    : engine_(std::move(engine)), listener_(std::move(listener)) {
    thread_ = start_helper_thread("regroup-exec", [this] { run(); });
}

Executor::~Executor() {
    if (thread_.joinable()) {
        static_cast<void>(stop(false));
    }
}

void Executor::post(Operation operation) {
    operation.is_large = std::max(operation.buffer.bytes(), operation.input.bytes()) >= kLargeBytes;
    bool wake = false;
    {
        const std::lock_guard lock(mutex_);
        queue_.push_back(std::move(operation));
        wake = asleep_ || queue_.back().is_large;
        asleep_ = false;
    }
    if (wake) {
        changed_.notify_all();
    }
}

void Executor::help(const Work::State& state) {
    // If another thread executes operations, it also executes this one: do not wait for it.
    static_cast<void>(carry_out_if_free(&state));
}

/// False if another thread executes operations.
bool Executor::carry_out_if_free(const Work::State* state) {
    {
        const std::lock_guard lock(mutex_);
        if (running_) {
            return false;
        }
        running_ = true;
    }
    struct Releaser {
        ~Releaser() { executor.release(); }
        Executor& executor;
    };
    const Releaser releaser{*this};
    const DefaultArithmetic arithmetic;
    carry_out_until(state);
    return true;
}

void Executor::release() noexcept {
    bool awaited = false;
    {
        const std::lock_guard lock(mutex_);
        running_ = false;
        awaited = suspended_ || over_;
    }
    if (awaited) {
        changed_.notify_all();
    }
}

/// Without a state, until the queue is empty.
void Executor::carry_out_until(const Work::State* state) {
    while (state == nullptr || !state->done()) {
        Operation* operation = nullptr;
        {
            const std::lock_guard lock(mutex_);
            if (queue_.empty() || over_) {
                return;
            }
            operation = &queue_.front();  // Remains valid: others only append.
        }
        std::optional<GroupFailure> failure;
        try {
            const Instant now = SteadyClock().now();
            listener_.start(*operation, now);
            engine_->carry_out(*operation, now);
        } catch (GroupFailure& caught) {
            failure = std::move(caught);
            failure->operation = describe(operation->signature);
        } catch (const Error& error) {
            failure = {error.code(), error.what(), describe(operation->signature)};
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

void Executor::run() {
    std::unique_lock lock(mutex_);
    for (int looks = 0; !over_;) {
        const bool urgent = !queue_.empty() && queue_.front().is_large;
        const Instant now = SteadyClock().now();
        if (urgent || (!queue_.empty() && now - queue_.front().issued_at >= kGrace)) {
            lock.unlock();
            const bool ran = carry_out_if_free(nullptr);
            lock.lock();
            looks = 0;
            if (!ran) {
                suspended_ = true;
                changed_.wait(lock, [this] { return !running_ || over_; });
                suspended_ = false;
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

std::string Executor::current() const {
    const std::lock_guard lock(mutex_);
    return queue_.empty() ? "" : describe(queue_.front().signature);
}

std::vector<Operation> Executor::stop(bool orderly) {
    {
        const std::lock_guard lock(mutex_);
        over_ = true;
    }
    changed_.notify_all();
    engine_->stop(orderly);
    std::unique_lock lock(mutex_);
    // A thread that is about to fall asleep misses the wake-up: repeat it.
    while (!changed_.wait_for(lock, kStirInterval, [this] { return !running_; })) {
        engine_->stop(orderly);
    }
    lock.unlock();
    thread_.join();
    std::vector<Operation> left;
    lock.lock();
    changed_.wait(lock, [this] { return !running_; });  // A waiting caller may still execute.
    std::move(queue_.begin(), queue_.end(), std::back_inserter(left));
    queue_.clear();
    return left;
}

}  // namespace regroup::cpu
