// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace regroup::worker_link {

/// Whether a sender waits for a peer that does not keep up.
enum class WhenFull { wait, fail };

/// Sends one message over a connected SOCK_SEQPACKET socket, with a copy of `descriptor` if that is
/// not negative. The message is sent as a whole or not at all. Returns false and sets errno on
/// failure: EAGAIN if the peer does not keep up and `when_full` is `fail`. Never raises SIGPIPE.
[[nodiscard]] bool send_packet(int socket, std::string_view packet, WhenFull when_full,
                               int descriptor = -1) noexcept;

}  // namespace regroup::worker_link
