// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "worker_sdk/src/nccl/control_ring.h"
#include "worker_sdk/src/nccl/lane.h"
#include "worker_sdk/src/nccl/reaper.h"
#include "worker_sdk/src/nccl/roll_call.h"
#include "worker_sdk/src/net/wakeup.h"

namespace regroup::nccl {

/// The one thread that watches over a group and all its sub-groups: completes what the GPU has
/// done, asks NCCL for errors, enforces the deadlines, reads the ring's notices about other ranks.
/// It is also the registry of the communicators: a failure ends all of them together and tells each
/// to stop before it frees any. Only a sub-group that is aborted on purpose ends alone.
class Watchdog {
   public:
    /// `ring` is null in a world of one.
    Watchdog(const Backend& backend, Device device, std::uint32_t rank,
             std::unique_ptr<ControlRing> ring, std::shared_ptr<net::Wakeup> wakeup,
             std::shared_ptr<Reaper> reaper);
    /// Ends the remaining lanes, tells the other ranks that this rank has left, joins the thread,
    /// and waits up to a limit for the reaper.
    ~Watchdog();
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

    [[nodiscard]] const std::shared_ptr<net::Wakeup>& wakeup() const noexcept { return wakeup_; }
    [[nodiscard]] const std::shared_ptr<Reaper>& reaper() const noexcept { return reaper_; }

    // Any thread.

    /// Watches over `lane` from now on.
    void add(std::shared_ptr<Lane> lane);
    /// The user has released the lane: leaves in order if nothing is in flight, else aborts the
    /// lane.
    void release(const std::shared_ptr<Lane>& lane) noexcept;

   private:
    struct Held {
        std::shared_ptr<Lane> lane;
        GroupFailure failure;
        Instant since;
    };

    [[nodiscard]] bool is_stopping();
    [[nodiscard]] std::vector<std::shared_ptr<Lane>> lanes();
    void run() noexcept;
    void turn();
    void wait(const std::vector<std::shared_ptr<Lane>>& watched, Instant now);
    void hear(Instant now);
    void hear_ended(const Notice& notice);
    void hear_standing(const Notice& notice, Instant now);
    void take_failure(const std::shared_ptr<Lane>& lane, GroupFailure failure, Instant now);
    void end_all(const GroupFailure& failure);
    /// The failure that was held, if no notice needs to be waited for any more.
    [[nodiscard]] std::optional<GroupFailure> explained(Instant now);
    void finish(std::uint32_t scope, const GroupFailure& failure);
    void tell_others(std::uint32_t scope, const GroupFailure& failure);

    const Backend backend_;
    const Device device_;
    const std::uint32_t rank_;
    const std::unique_ptr<ControlRing> ring_;
    std::optional<RollCall> roll_call_;  // With a ring. Used by the watchdog's thread alone.
    const std::shared_ptr<net::Wakeup> wakeup_;
    net::PollSet poll_;  // Used by the watchdog's thread alone.
    /// Runs calls that may block; the watchdog's thread must not block.
    const std::shared_ptr<Reaper> reaper_;
    /// A failure that a notice of the ring may still explain. Used by the watchdog's thread alone.
    std::optional<Held> held_;

    std::mutex mutex_;  // Guards the rest.
    std::vector<std::shared_ptr<Lane>> lanes_;
    /// By scope; 0 ends all groups. A notice about a sub-group may arrive before this rank has
    /// formed it.
    std::map<std::uint32_t, GroupFailure> ended_;
    /// The members that have left in order, for lanes that are added later.
    std::map<std::uint32_t, Instant> departed_;
    bool stopping_ = false;

    std::thread thread_;
};

}  // namespace regroup::nccl
