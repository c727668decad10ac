// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/link/snapshot_door.h"

#include <utility>

namespace regroup::link {

Result<UniqueFd> SnapshotDoor::open(const std::function<void()>& knock, Instant deadline) {
    const std::lock_guard opening(opening_);
    std::unique_lock lock(mutex_);
    answer_.reset();
    lock.unlock();
    knock();
    lock.lock();
    if (!changed_.wait_until(lock, deadline, [this] { return answer_ || is_closed_; })) {
        return Failure(Errc::deadline_exceeded,
                       "the agent has not given this worker a channel for snapshots in time");
    }
    if (!answer_) {
        return Failure(Errc::disconnected, "the agent that started this worker is gone");
    }
    Answer answer = *std::exchange(answer_, std::nullopt);
    if (!answer.socket) {
        return Failure(Errc::system,
                       "the agent gives this worker no channel for snapshots: " + answer.error);
    }
    return std::move(answer.socket);
}

void SnapshotDoor::answer(UniqueFd socket, const std::string& error) {
    const std::lock_guard lock(mutex_);
    answer_ = Answer{std::move(socket), error};
    changed_.notify_all();
}

void SnapshotDoor::close() {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    changed_.notify_all();
}

}  // namespace regroup::link
