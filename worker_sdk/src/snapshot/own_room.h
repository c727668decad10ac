// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "rendezvous/snapshot/room.h"
#include "worker_sdk/src/net/fork_guard.h"
#include "worker_sdk/src/snapshot/keeper.h"

namespace regroup::snapshot {

/// The room in which this rank saves, hidden from forked children.
class OwnRoom {
   public:
    /// Gets a room as wanted, unless it has one. `flexible_bytes` of them may have another length
    /// in the next step. Throws Error as Keeper::room; the room is then what it was.
    void make(Keeper& keeper, RoomWanted wanted, std::uint64_t flexible_bytes);

    explicit operator bool() const noexcept { return room_ != nullptr; }
    [[nodiscard]] Room& operator*() const noexcept { return *room_; }
    [[nodiscard]] Room* operator->() const noexcept { return room_.get(); }

   private:
    PartId id_{};
    std::shared_ptr<Room> room_;
    std::optional<net::ForkGuard> descriptor_;
    std::optional<net::MappingForkGuard> mapping_;
};

}  // namespace regroup::snapshot
