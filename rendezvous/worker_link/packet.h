// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace regroup::worker_link {

/// Whether a sender waits for a peer that does not keep up.
enum class WhenFull { wait, fail };

/// Sends one message over a connected SOCK_SEQPACKET socket, with a copy of `descriptor` if that is
/// not negative. All or nothing goes out; false, with errno, if it does not: EAGAIN if the peer
/// does not keep up and that is not to be waited for. Never raises SIGPIPE.
[[nodiscard]] bool send_packet(int socket, std::string_view packet, WhenFull when_full,
                               int descriptor = -1) noexcept;

}  // namespace regroup::worker_link
