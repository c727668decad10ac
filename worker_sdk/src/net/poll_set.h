// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>
#include <vector>

#include "rendezvous/base/clock.h"
#include "worker_sdk/src/net/socket.h"

namespace regroup::net {

/// The descriptors for which one turn of the helper thread waits. `wait` empties the set.
class PollSet {
   public:
    /// The pollables must live until `wait` returns. One that is ready already makes `wait` return
    /// at once.
    void want_read(Pollable& pollable);
    void want_write(Pollable& pollable);

    /// Blocks until a pollable is ready or until `until`, and records on the pollables which sides
    /// are ready. Throws Error `system`.
    void wait(Instant until);

   private:
    void want(Pollable& pollable, short events);

    std::vector<pollfd> entries_;
    std::vector<Pollable*> pollables_;  // One for each of entries_.
    bool ready_ = false;
};

/// An object that makes progress in every turn.
class Participant {
   public:
    virtual ~Participant() = default;
    virtual void watch(PollSet& poll) = 0;
    virtual void progress() = 0;
    /// When `progress` is due even if no descriptor is ready.
    [[nodiscard]] virtual Instant next_deadline() const { return Instant::max(); }
};

}  // namespace regroup::net
