// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "worker_sdk/src/cpu/file_ticket.h"
#include "worker_sdk/src/net/poll_set.h"
#include "worker_sdk/src/net/socket.h"

namespace regroup::cpu {

/// Ends the poll() of a thread when another process of the machine rings.
class Doorbell {
   public:
    /// Throws Error `system`.
    Doorbell();

    /// For the processes that ring.
    [[nodiscard]] FileTicket ticket() const { return FileTicket::of(button_); }
    /// The means to ring the owner of a ticket; closed if this process cannot reach it.
    [[nodiscard]] static UniqueFd button_of(const FileTicket& ticket);
    /// Any thread.
    static void ring(const UniqueFd& button) noexcept;
    void ring() const noexcept { ring(button_); }

    // The thread that polls.
    void watch(net::PollSet& poll) { poll.want_read(bell_); }
    void drain() noexcept;

   private:
    net::Pollable bell_;  // A pipe's read end: unlike an eventfd, others can open a pipe.
    UniqueFd button_;     // Its write end.
};

}  // namespace regroup::cpu
