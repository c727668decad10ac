// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace regroup::rendezvous {

enum class PortProtocol : std::uint8_t { control, store, undecided };

/// Which protocol a connection of the daemon's port speaks that begins with `bytes`; `undecided` as
/// long as more are needed, five at most. Exact for each first request of every TCPStore client and
/// each first message of an agent; what is neither is `control`, which knows how to refuse.
///
///     control      length, 4 bytes, at most 00 04 00 00        '{'
///     store        00 CE F7 85 3C
///     older store  an opcode from 01 to 0B
///                  00, an older `set`, and the length of its key: 8 bytes, the lowest first, none
///                  of them beyond the second, and not 0: every key begins with a '/'
[[nodiscard]] PortProtocol tell_protocol(std::string_view bytes) noexcept;

}  // namespace regroup::rendezvous
