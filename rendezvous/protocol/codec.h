// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "rendezvous/base/result.h"
#include "rendezvous/core/messages.h"

namespace regroup::protocol {

/// Both sides must speak the same version; it is said in the first message of each connection.
inline constexpr int kProtocolVersion = 1;

// Names identify: a longer one is refused. The rest is for people: it is cut, by the sender and
// again by the receiver, so that any message fits a frame whatever a node says. A sentence or a
// path keeps its beginning, a worker's output its end.

inline constexpr std::size_t kNameBytesMax = 255;
inline constexpr std::size_t kSentenceBytesMax = 4096;
inline constexpr std::size_t kOutputBytesMax = std::size_t{16} << 10;
/// Lists of names are cut after this many.
inline constexpr std::size_t kNamesMax = 64;
/// Of the positions of a node's ranks those most behind are sent, and of what a rank does so much.
inline constexpr std::size_t kPositionsMax = 256;
inline constexpr std::size_t kDoingBytesMax = 48;
/// Of the broken connections of a node's ranks so many are sent, and of what is said of one.
inline constexpr std::size_t kBrokenLinksMax = 16;
inline constexpr std::size_t kLinkBytesMax = 128;
/// The answer to an operator; who makes a JSON object of it keeps within this.
inline constexpr std::size_t kStatusBytesMax = std::size_t{80} << 10;
/// A payload whose objects and lists are nested deeper than this is refused.
inline constexpr std::size_t kNestingMax = 16;

/// One message as the JSON object of a frame (PROTOCOL.md lists the fields); never longer than
/// kFrameBytesMax. Text that is not UTF-8, such as a worker's output, is carried with replacement
/// characters. Requires that names be at most kNameBytesMax.
[[nodiscard]] std::string encode(const rendezvous::FromAgent& message);
[[nodiscard]] std::string encode(const rendezvous::FromDaemon& message);

/// And back. Unknown fields are ignored; an unknown type, a missing or malformed field, or another
/// protocol version is a Failure `invalid_argument` that names it.
[[nodiscard]] Result<rendezvous::FromAgent> decode_from_agent(std::string_view payload);
[[nodiscard]] Result<rendezvous::FromDaemon> decode_from_daemon(std::string_view payload);

}  // namespace regroup::protocol
