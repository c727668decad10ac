// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rendezvous/base/clock.h"
#include "worker_sdk/src/cuda/device_runtime.h"
#include "worker_sdk/src/group/group_failure.h"
#include "worker_sdk/src/group/work.h"
#include "worker_sdk/src/nccl/backend.h"
#include "worker_sdk/src/nccl/communicator.h"
#include "worker_sdk/src/nccl/group_identity.h"
#include "worker_sdk/src/nccl/operation.h"
#include "worker_sdk/src/nccl/waiters.h"
#include "worker_sdk/src/net/wakeup.h"

namespace regroup::nccl {

/// The operations of a group that are in flight, and the failure that ends the group. The caller's
/// thread adds operations, the watchdog's thread detects how they end.
class InFlight {
   public:
    /// `identity` must outlive it.
    InFlight(const Backend& backend, const GroupIdentity& identity,
             std::shared_ptr<net::Wakeup> watchdog);

    // Any thread.

    /// The failure with which the group has ended, or is about to.
    [[nodiscard]] std::optional<GroupFailure> failure() const;
    /// Ends the group with `failure`, unless it has ended. The watchdog does it soon.
    void post(GroupFailure failure) noexcept;
    [[nodiscard]] bool is_idle() const;
    /// Whether NCCL may still touch memory that was in use: for an operation, or until the abort of
    /// a group that has ended.
    [[nodiscard]] bool may_touch_memory() const;
    /// The state of a new operation, which threads can wait for.
    [[nodiscard]] std::shared_ptr<Work::State> make_work() const;
    /// How far this rank has come in the group's collectives.
    [[nodiscard]] Standing standing() const;
    void succeed(const Call& call, Instant now) const;

    // The caller's thread.

    /// Shows the watchdog the operations being issued, for the duration of a scope.
    class Issuing {
       public:
        Issuing(InFlight& in_flight, std::vector<Operation> operations);
        ~Issuing();
        Issuing(const Issuing&) = delete;
        Issuing& operator=(const Issuing&) = delete;

       private:
        InFlight& in_flight_;
    };

    /// False if the group has ended: then `calls` have failed. Throws Error `overloaded`.
    [[nodiscard]] bool admit(std::span<const Call> calls) const;
    /// `calls` are done when what is in `stream` now is done.
    void track(std::vector<Call> calls, void* stream);
    /// `calls` have met `failure`. The watchdog ends the group with them: it may learn which rank
    /// is the cause.
    void track_failed(std::vector<Call> calls, GroupFailure failure);
    /// After post(): the failure with which the watchdog has ended the group, which may hold more
    /// facts than the posted one. Empty if the watchdog takes too long.
    [[nodiscard]] std::optional<GroupFailure> await_end() const;

    // The watchdog's thread.

    /// Completes the operations that are done. Returns the failure that ends the group: a posted
    /// failure, an error of NCCL, which `report` tells, or of CUDA, or a deadline.
    [[nodiscard]] std::optional<GroupFailure> check(const CommReport& report, Instant now);
    /// The time until the next check.
    [[nodiscard]] Duration patience(Instant now) const;
    /// A member has left in order; operations that still need it will fail.
    void note_departure(std::uint32_t member, Instant now);
    /// Ends the group: fails the operations in flight and all later operations.
    void end(const GroupFailure& failure);
    /// Another member has told its standing. Returns the failure if it calls a collective that
    /// differs from this rank's.
    [[nodiscard]] std::optional<GroupFailure> compare(std::uint32_t member,
                                                      const Standing& standing) const;

   private:
    struct Entry {
        std::vector<Call> calls;
        std::optional<cuda::Event> event;  ///< None if the calls have failed already.
        Instant turn_began;
    };
    struct Begun {
        std::vector<Operation> operations;
        Instant since;
    };

    [[nodiscard]] cuda::Event take_event();
    void enter(std::vector<Call> calls, std::optional<cuda::Event> event);
    void fail(std::span<const Call> calls, const GroupFailure& failure) const;
    [[nodiscard]] std::string oldest() const;
    [[nodiscard]] std::optional<GroupFailure> deserted(Instant now) const;
    [[nodiscard]] std::optional<GroupFailure> overdue(Instant now) const;
    [[nodiscard]] void* front_event() const;
    [[nodiscard]] std::vector<Call> complete_front(Instant now);

    const Backend backend_;
    const GroupIdentity& identity_;
    const std::shared_ptr<net::Wakeup> watchdog_;
    const std::shared_ptr<Waiters> waiters_;

    mutable std::mutex mutex_;  // Guards the rest.
    std::deque<Entry> entries_;
    std::optional<Begun> issuing_;  // The caller's thread is putting it into the stream.
    std::deque<Signature> called_;  // The last collectives, complete or not.
    std::size_t outstanding_ = 0;
    std::vector<cuda::Event> free_events_;
    std::map<std::uint32_t, Instant> departed_;  // By rank in this group.
    std::optional<GroupFailure> posted_;
    std::optional<GroupFailure> failure_;
    mutable std::condition_variable ended_;
};

}  // namespace regroup::nccl
