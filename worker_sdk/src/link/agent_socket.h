// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <sys/types.h>

#include "rendezvous/base/result.h"
#include "worker_sdk/src/net/socket.h"

namespace regroup::link {

/// Connects to the agent that listens at `path`, or in the abstract namespace if that begins with
/// '@'. Failures: `disconnected` if there is none of this user, `invalid_argument`, `system`.
[[nodiscard]] Result<UniqueFd> dial_agent(const std::string& path);

/// The process at the other end; 0 if it is in a namespace that is not visible from here.
[[nodiscard]] pid_t peer_pid(const UniqueFd& socket) noexcept;

/// A message and the descriptor that came with it.
struct Packet {
    std::string text;
    UniqueFd descriptor;
};

/// Waits for one packet; its text is empty at the end of the connection.
[[nodiscard]] Packet receive_packet(const UniqueFd& socket);

}  // namespace regroup::link
