// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/snapshot/own_room.h"

#include <utility>

namespace regroup::snapshot {
namespace {

constexpr std::uint64_t kSpareBytes = 65536;

}  // namespace

void OwnRoom::make(Keeper& keeper, const PartId& id, std::uint64_t bytes,
                   std::uint64_t flexible_bytes, bool replicated) {
    if (room_ && id_ == id && room_->slot_bytes() >= bytes) {
        return;
    }
    // States that are no tensors may have another length each time.
    const std::uint64_t spare = flexible_bytes == 0 ? 0 : flexible_bytes / 4 + kSpareBytes;
    std::shared_ptr<Room> room = keeper.room(id, bytes + spare, replicated);
    mapping_.reset();
    descriptor_.reset();
    room_ = std::move(room);
    id_ = id;
    descriptor_.emplace(room_->fd());
    mapping_.emplace(room_->slot(0).data() - kRoomPageBytes, room_->bytes());
}

}  // namespace regroup::snapshot
