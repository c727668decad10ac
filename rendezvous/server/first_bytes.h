// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace regroup::rendezvous {

enum class PortProtocol : std::uint8_t { control, store, http, undecided };

/// The protocol of a connection to the daemon's port that begins with `bytes`; `undecided` while
/// more bytes are needed, five at most. Exact for every first request of every TCPStore client,
/// every first message of an agent and the usual methods of HTTP. Anything else is `control`, where
/// it is refused.
///
///     control      length, 4 bytes, at most 00 04 00 00        '{'
///     store        00 CE F7 85 3C
///     older store  an opcode from 01 to 0B
///                  00, an older `set`, and the length of its key: 8 bytes, the lowest first, none
///                  of them beyond the second, and not 0: every key begins with a '/'
///     http         a method: five letters from A to Z, or three or four and a blank
[[nodiscard]] PortProtocol tell_protocol(std::string_view bytes) noexcept;

}  // namespace regroup::rendezvous
