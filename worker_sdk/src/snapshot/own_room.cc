// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/snapshot/own_room.h"

#include <utility>

namespace regroup::snapshot {
namespace {

constexpr std::uint64_t kSpareBytes = 65536;

}  // namespace

void OwnRoom::make(Keeper& keeper, RoomWanted wanted, std::uint64_t flexible_bytes) {
    if (room_ && !wanted.fresh && id_ == wanted.id && room_->slot_bytes() >= wanted.bytes) {
        return;
    }
    // States that are no tensors may have another length each time.
    wanted.spare = flexible_bytes == 0 ? 0 : flexible_bytes / 4 + kSpareBytes;
    std::shared_ptr<Room> room = keeper.room(wanted);
    mapping_.reset();
    descriptor_.reset();
    room_ = std::move(room);
    id_ = std::move(wanted.id);
    descriptor_.emplace(room_->fd());
    mapping_.emplace(room_->slot(0).data() - kRoomPageBytes, room_->bytes());
}

}  // namespace regroup::snapshot
