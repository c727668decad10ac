// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/group/work.h"

#include <utility>

namespace regroup {
namespace {

thread_local WaitMeter* current_meter = nullptr;

}  // namespace

WaitMeter::WaitMeter() {
    ENSURE(current_meter == nullptr);
    current_meter = this;
}

WaitMeter::~WaitMeter() {
    current_meter = nullptr;
}

WaitMeter* WaitMeter::current() noexcept {
    return current_meter;
}

void WaitMeter::begin() noexcept {
    began_ = SteadyClock().now();
    waiting(true);
}

void WaitMeter::end() noexcept {
    waited_ += SteadyClock().now() - began_;
    waiting(false);
}

void Work::State::succeed(Instant at) {
    complete(std::nullopt, at);
}

void Work::State::fail(Errc code, const std::string& detail) {
    complete(Failure(code, detail), SteadyClock().now());
}

void Work::State::complete(std::optional<Failure> failure, Instant at) {
    {
        const std::lock_guard lock(mutex_);
        ENSURE(!done_);
        completed_at_ = at;
        failure_ = std::move(failure);
        done_ = true;
    }
    completed_.notify_all();
}

void Work::State::wait() const {
    mark_.require("wait");
    if (helper_ && !done()) {
        helper_->help(*this);
    }
    await_done();
    if (failure_) {
        throw Error(failure_->code, failure_->detail);
    }
}

void Work::State::await_done() const {
    std::unique_lock lock(mutex_);
    // The thread that carries the operation out keeps its deadline and always completes it.
    completed_.wait(lock, [this] { return done_; });
}

bool Work::State::done() const {
    if (!mark_.is_here()) {
        return true;  // Without the lock, which another thread of the parent may have held.
    }
    const std::lock_guard lock(mutex_);
    return done_;
}

std::optional<Instant> Work::State::completed_at() const {
    if (!mark_.is_here()) {
        return std::nullopt;
    }
    const std::lock_guard lock(mutex_);
    return done_ ? std::optional(completed_at_) : std::nullopt;
}

void Work::wait() const {
    if (!state_) {
        return;
    }
    WaitMeter* const meter = WaitMeter::current();
    if (meter == nullptr) {
        return state_->wait();
    }
    struct Measured {
        Measured(WaitMeter& meter_in, bool waits_in) noexcept : meter(meter_in), waits(waits_in) {
            if (waits) {
                meter.begin();
            }
        }
        ~Measured() {
            if (waits) {
                meter.end();
            }
        }
        Measured(const Measured&) = delete;
        Measured& operator=(const Measured&) = delete;
        WaitMeter& meter;
        const bool waits;
    };
    const Measured measured(*meter, !state_->done());
    try {
        state_->wait();
    } catch (const Error&) {
        meter->note_failure();
        throw;
    }
}

bool Work::done() const {
    return !state_ || state_->done();
}

std::optional<std::chrono::steady_clock::time_point> Work::completed_at() const {
    return state_ ? state_->completed_at() : std::nullopt;
}

Work failed_work(Errc code, const std::string& detail) {
    auto state = std::make_shared<Work::State>();
    state->fail(code, detail);
    return Work(std::move(state));
}

}  // namespace regroup
