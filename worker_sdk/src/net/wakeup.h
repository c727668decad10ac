// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "worker_sdk/src/net/poll_set.h"
#include "worker_sdk/src/net/socket.h"

namespace regroup::net {

/// Ends the poll() of another thread.
class Wakeup {
   public:
    /// Throws Error `system`.
    Wakeup();

    /// Any thread.
    void ring() noexcept;
    /// An eventfd: a signal handler rings by adding to it.
    [[nodiscard]] int descriptor() const noexcept { return event_.fd.get(); }

    // The thread that polls.
    void watch(PollSet& poll) { poll.want_read(event_); }
    /// True once after any number of rings.
    [[nodiscard]] bool drain() noexcept;

   private:
    Pollable event_;  // An eventfd.
};

}  // namespace regroup::net
