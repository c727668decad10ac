// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "worker_sdk/src/cpu/operation.h"
#include "worker_sdk/src/group/group_failure.h"

namespace regroup::cpu {

/// The callers of a group and its helper thread tell each other here which operations were issued,
/// and with which failure the group ends. Any thread.
class GroupState {
   public:
    /// `check` is called while the group forms; its exception ends the attempt.
    explicit GroupState(std::function<void()> check) : check_(std::move(check)) {}

    // Callers.

    void note_formed();
    /// Throws Error: the failure with which the group has ended, if it has.
    void require_alive() const;
    [[nodiscard]] std::uint64_t next_division();
    [[nodiscard]] std::uint32_t next_region();
    /// Numbers `operation`, and calls `enter(operation)` in the order of the numbers. Returns the
    /// failure if the group has ended. Throws Error `overloaded`.
    template <class Enter>
    [[nodiscard]] std::optional<GroupFailure> admit(Operation& operation, const Enter& enter) {
        const std::lock_guard lock(mutex_);
        std::uint64_t& issued = is_message(operation) ? messages_issued_ : collectives_issued_;
        const bool counts = operation.signature.kind != OperationKind::form;
        operation.signature.number = counts ? issued + 1 : operation.signature.number;
        if (auto failure = ended()) {
            return failure;
        }
        require_room(operation);
        issued += counts ? 1U : 0U;
        ++outstanding_;
        enter(operation);
        return std::nullopt;
    }
    /// Hands a message to the helper thread. Called by `enter`.
    void queue(Operation operation) { messages_.push_back(std::move(operation)); }
    /// The group ends with the reason, unless it has ended.
    void abort(std::string reason);
    /// The group is about to be destroyed.
    void close();

    // Those that carry out operations.

    /// An operation has succeeded.
    void note_complete();
    /// The group is to end with `failure`.
    void report(GroupFailure failure);
    /// The failure with which the group has ended. Requires that it has.
    [[nodiscard]] GroupFailure failure() const;

    // The helper thread.

    /// Calls `check` while the group forms.
    void check_forming();
    [[nodiscard]] bool is_forming() const;
    struct Orders {
        std::deque<Operation> messages{};
        std::optional<GroupFailure> reported{};
        bool leave = false;  ///< The group is destroyed with nothing left to do.
    };
    /// The orders of callers since the last time. Throws GroupFailure if one has aborted the
    /// group.
    [[nodiscard]] Orders take_orders();
    /// Operations that are issued from now on fail with `failure`.
    void end(const GroupFailure& failure);
    /// The messages that no messenger has got. Nothing is outstanding afterwards.
    [[nodiscard]] std::deque<Operation> take_rest();

   private:
    [[nodiscard]] std::optional<GroupFailure> ended() const;
    void require_room(const Operation& operation) const;

    mutable std::mutex mutex_;
    // Guarded by mutex_.
    std::function<void()> check_;  // While the group forms.
    std::deque<Operation> messages_;
    std::size_t outstanding_ = 0;
    std::uint64_t collectives_issued_ = 0;
    std::uint64_t messages_issued_ = 0;
    std::uint64_t divisions_ = 0;
    std::uint32_t regions_ = 0;
    std::optional<std::string> abort_reason_;
    std::optional<GroupFailure> reported_failure_;
    bool closing_ = false;
    std::optional<GroupFailure> failure_;
};

}  // namespace regroup::cpu
