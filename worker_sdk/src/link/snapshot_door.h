// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/result.h"
#include "worker_sdk/src/net/socket.h"

namespace regroup::link {

/// Where a thread that wants a socket for messages about snapshots waits for the agent. Any thread.
class SnapshotDoor {
   public:
    /// Calls `knock`, which asks the agent, and waits for the answer. Failures: `disconnected`,
    /// `deadline_exceeded`, `system` if the agent refuses.
    [[nodiscard]] Result<UniqueFd> open(const std::function<void()>& knock, Instant deadline);
    /// The agent has answered: with a socket, or with the reason why there is none.
    void answer(UniqueFd socket, const std::string& error);
    /// The agent is gone.
    void close();

   private:
    struct Answer {
        UniqueFd socket{};
        std::string error{};
    };
    std::mutex opening_;  // Of the thread that waits for the next answer.
    std::mutex mutex_;
    std::condition_variable changed_;
    std::optional<Answer> answer_;  // Guarded by mutex_.
    bool is_closed_ = false;        // Guarded by mutex_.
};

}  // namespace regroup::link
