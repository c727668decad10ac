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
#include "worker_sdk/src/nccl/wakeup.h"

namespace regroup::nccl {

/// The one thread that watches over a group and all its sub-groups: completes what the GPU has
/// done, asks NCCL for errors, keeps the deadlines, hears what the ring says of other ranks. It is
/// also the registry of the communicators: a failure ends all of them together, each told to stop
/// before any is freed; only a sub-group that is given up on purpose ends alone.
class Watchdog {
   public:
    /// `ring` is null in a world of one.
    Watchdog(const Backend& backend, Device device, std::uint32_t rank,
             std::unique_ptr<ControlRing> ring, std::shared_ptr<Wakeup> wakeup,
             std::shared_ptr<Reaper> reaper);
    /// Ends what is left, tells the others that this rank has left, joins the thread, and waits to
    /// a limit for what is being freed.
    ~Watchdog();
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

    [[nodiscard]] const std::shared_ptr<Wakeup>& wakeup() const noexcept { return wakeup_; }
    [[nodiscard]] const std::shared_ptr<Reaper>& reaper() const noexcept { return reaper_; }

    // Any thread.

    /// Watches over `lane` from now on.
    void add(std::shared_ptr<Lane> lane);
    /// The lane's user has gone: leaves in order if nothing is in flight, else gives it up.
    void release(const std::shared_ptr<Lane>& lane) noexcept;

   private:
    struct Held {
        GroupFailure failure;
        std::uint32_t scope = 0;
        Instant until;
    };

    [[nodiscard]] bool is_stopping();
    [[nodiscard]] std::vector<std::shared_ptr<Lane>> lanes();
    void run() noexcept;
    void turn();
    void wait(const std::vector<std::shared_ptr<Lane>>& watched, Instant now);
    void hear(Instant now);
    void take_failure(const std::shared_ptr<Lane>& lane, GroupFailure failure, Instant now);
    void end_all(const GroupFailure& failure);
    /// With the name of a rank that has left, if one has.
    [[nodiscard]] GroupFailure with_departure(GroupFailure failure);
    void finish(std::uint32_t scope, const GroupFailure& failure);
    void tell_others(std::uint32_t scope, const GroupFailure& failure);

    const Backend backend_;
    const Device device_;
    const std::uint32_t rank_;
    const std::unique_ptr<ControlRing> ring_;
    const std::shared_ptr<Wakeup> wakeup_;
    /// Does what may block, which this thread never does.
    const std::shared_ptr<Reaper> reaper_;
    /// A failure that the ring may yet explain. The thread's alone.
    std::optional<Held> held_;

    std::mutex mutex_;  // Guards the rest.
    std::vector<std::shared_ptr<Lane>> lanes_;
    /// By scope; 0 ends everything. News of a sub-group may come before this rank has it.
    std::map<std::uint32_t, GroupFailure> ended_;
    /// Who has left in order, for lanes that are yet to come.
    std::map<std::uint32_t, Instant> departed_;
    bool stopping_ = false;

    std::thread thread_;
};

}  // namespace regroup::nccl
