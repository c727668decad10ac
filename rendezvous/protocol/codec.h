// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "rendezvous/base/result.h"
#include "rendezvous/core/messages.h"

namespace regroup::protocol {

/// Both sides must speak the same version; it is said in the first message of each connection.
inline constexpr int kProtocolVersion = 1;
/// Job ids, node ids and names are at most this long.
inline constexpr std::size_t kNameBytesMax = 255;

// One message as the JSON object of a frame (PROTOCOL.md lists the fields). Text that is not UTF-8,
// such as a worker's output, is carried with replacement characters.

[[nodiscard]] std::string encode(const rendezvous::FromAgent& message);
[[nodiscard]] std::string encode(const rendezvous::FromDaemon& message);

// And back. Unknown fields are ignored; an unknown type, a missing or malformed field, or another
// protocol version is a Failure `invalid_argument` that names it.

[[nodiscard]] Result<rendezvous::FromAgent> decode_from_agent(std::string_view payload);
[[nodiscard]] Result<rendezvous::FromDaemon> decode_from_daemon(std::string_view payload);

}  // namespace regroup::protocol
