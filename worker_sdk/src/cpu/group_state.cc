// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/group_state.h"

#include <regroup/error.h>

namespace regroup::cpu {
namespace {

constexpr std::size_t kOutstandingMax = 65536;

}  // namespace

void GroupState::note_formed() {
    const std::lock_guard lock(mutex_);
    check_ = nullptr;
}

std::optional<GroupFailure> GroupState::ended() const {
    return failure_ || !abort_reason_ ? failure_ : GroupFailure{Errc::fenced, *abort_reason_};
}

void GroupState::require_alive() const {
    const std::lock_guard lock(mutex_);
    if (const auto failure = ended()) {
        throw Error(failure->code, failure->cause);
    }
}

std::uint64_t GroupState::next_division() {
    const std::lock_guard lock(mutex_);
    return divisions_++;
}

std::uint32_t GroupState::next_region() {
    const std::lock_guard lock(mutex_);
    return ++regions_;
}

void GroupState::require_room(const Operation& operation) const {
    if (outstanding_ == kOutstandingMax) {
        throw Error(Errc::overloaded, describe(operation.signature) + ": " +
                                          std::to_string(kOutstandingMax) +
                                          " operations are in flight; wait for some");
    }
}

void GroupState::abort(std::string reason) {
    const std::lock_guard lock(mutex_);
    if (!abort_reason_ && !failure_) {
        abort_reason_ = std::move(reason);
    }
}

void GroupState::close() {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    if (outstanding_ > 0 && !abort_reason_) {
        abort_reason_ = "the group was destroyed with operations in flight";
    }
}

void GroupState::note_complete() {
    const std::lock_guard lock(mutex_);
    --outstanding_;
}

void GroupState::report(GroupFailure failure) {
    const std::lock_guard lock(mutex_);
    reported_failure_ = std::move(failure);
}

GroupFailure GroupState::failure() const {
    const std::lock_guard lock(mutex_);
    return failure_.value();
}

bool GroupState::is_forming() const {
    const std::lock_guard lock(mutex_);
    return check_ != nullptr;
}

void GroupState::check_forming() {
    const std::lock_guard lock(mutex_);
    if (check_) {
        check_();
    }
}

GroupState::Orders GroupState::take_orders() {
    const std::lock_guard lock(mutex_);
    if (abort_reason_) {
        throw GroupFailure{Errc::fenced, *abort_reason_};
    }
    return {.messages = std::exchange(messages_, {}),
            .reported = reported_failure_,
            .leave = closing_ && !reported_failure_};
}

void GroupState::end(const GroupFailure& failure) {
    const std::lock_guard lock(mutex_);
    failure_ = failure;
}

std::deque<Operation> GroupState::take_rest() {
    const std::lock_guard lock(mutex_);
    outstanding_ = 0;
    return std::exchange(messages_, {});
}

}  // namespace regroup::cpu
