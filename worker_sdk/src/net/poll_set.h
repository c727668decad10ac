// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>
#include <vector>

#include "rendezvous/base/clock.h"
#include "worker_sdk/src/net/socket.h"

namespace regroup::net {

/// What one turn of the helper thread waits for. Filled, waited on once, and empty again.
class PollSet {
   public:
    /// The pollables must live until `wait` returns. One that is ready already makes `wait` return
    /// at once.
    void want_read(Pollable& pollable);
    void want_write(Pollable& pollable);

    /// Blocks until something is ready or `until` has come, and notes on the pollables what is.
    /// Throws Error `system`.
    void wait(Instant until);

   private:
    void want(Pollable& pollable, short events);

    std::vector<pollfd> entries_;
    std::vector<Pollable*> pollables_;  // beside entries_
    bool ready_ = false;
};

/// Something that makes progress in every turn, whatever the turn is waiting for.
class Participant {
   public:
    virtual ~Participant() = default;
    virtual void watch(PollSet& poll) = 0;
    virtual void progress() = 0;
    /// When `progress` is due even if no descriptor stirs.
    [[nodiscard]] virtual Instant next_deadline() const { return Instant::max(); }
};

}  // namespace regroup::net
