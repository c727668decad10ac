// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/base/round_scope.h"

namespace regroup {

RoundScope::Registration::Registration(std::shared_ptr<RoundScope> scope, Listener listener) {
    if (!scope) {
        return;
    }
    const std::lock_guard lock(scope->mutex_);
    if (scope->reason_) {
        listener(*scope->reason_);
        return;
    }
    place_ = scope->listeners_.insert(scope->listeners_.end(), std::move(listener));
    scope_ = std::move(scope);
}

void RoundScope::Registration::leave() noexcept {
    if (scope_) {
        const std::lock_guard lock(scope_->mutex_);
        scope_->listeners_.erase(place_);
    }
    scope_.reset();
}

void RoundScope::interrupt(std::string_view reason) noexcept {
    const std::lock_guard lock(mutex_);
    if (reason_) {
        return;
    }
    reason_ = std::string(reason);
    interrupted_.notify_all();
    for (const Listener& listener : listeners_) {
        listener(*reason_);
    }
}

void RoundScope::on_break(BreakListener listener) {
    const std::lock_guard lock(mutex_);
    break_listener_ = std::move(listener);
}

void RoundScope::note_break(std::uint32_t peer, const std::string& how) noexcept {
    const std::lock_guard lock(mutex_);
    if (break_listener_ && !reason_) {
        break_listener_(peer, how);
    }
}

std::optional<std::string> RoundScope::reason() const {
    const std::lock_guard lock(mutex_);
    return reason_;
}

bool RoundScope::await_end(std::chrono::nanoseconds limit) const {
    std::unique_lock lock(mutex_);
    return interrupted_.wait_for(lock, limit, [&] { return reason_.has_value(); });
}

}  // namespace regroup
