// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>
#include <variant>

#include "rendezvous/base/result.h"
#include "rendezvous/core/messages.h"

namespace regroup::protocol {

/// Both sides must speak the same version, which is in the first message of each connection.
inline constexpr int kProtocolVersion = 1;

// A name that is too long is refused. Other texts are for people: the sender and the receiver both
// cut them, so that every message fits a frame. A sentence or a path keeps its beginning, a
// worker's output its end.

inline constexpr std::size_t kNameBytesMax = 255;
inline constexpr std::size_t kSentenceBytesMax = 4096;
inline constexpr std::size_t kOutputBytesMax = std::size_t{16} << 10;
/// Lists of names are cut after this many.
inline constexpr std::size_t kNamesMax = 64;
/// The most positions of a node's ranks that are sent (those furthest behind), and the size of
/// `doing`.
inline constexpr std::size_t kPositionsMax = 256;
inline constexpr std::size_t kDoingBytesMax = 48;
/// The most groups of all these ranks together that are sent, and the most collectives: of a group,
/// and of all of them together.
inline constexpr std::size_t kGroupsTold = 1024;
inline constexpr std::size_t kCalledTold = 16;
inline constexpr std::size_t kCalledToldOfAll = 4096;
/// The most broken links of a node that are sent, and the size of their text.
inline constexpr std::size_t kBrokenLinksMax = 16;
inline constexpr std::size_t kLinkBytesMax = 128;
/// Ranges of ranks that have finished. Those of a higher rank are left out.
inline constexpr std::size_t kFinishedMax = 512;
/// The size of an answer to an operator. JSON in it must be built to fit.
inline constexpr std::size_t kAnswerBytesMax = std::size_t{80} << 10;
/// The size of a part of a log, which an answer to an operator carries as JSON in JSON.
inline constexpr std::size_t kLogBytesMax = std::size_t{8} << 10;
/// A payload whose objects and lists are nested deeper than this is refused.
inline constexpr std::size_t kNestingMax = 16;

/// The names of the messages, which are their `type`, in the order of the variants.
inline constexpr std::string_view kAgentKinds[] = {"join",    "report",   "leave",
                                                   "resumed", "log_part", "operate"};
inline constexpr std::string_view kDaemonKinds[] = {
    "assign",    "stop",      "prepare",  "save_stacks", "end_worker", "read_log",
    "fenced",    "dismissed", "alive",    "waiting",     "refused",    "recovered",
    "slow_rank", "closed",    "operated", "elsewhere"};
static_assert(std::size(kAgentKinds) == std::variant_size_v<rendezvous::FromAgent>);
static_assert(std::size(kDaemonKinds) == std::variant_size_v<rendezvous::FromDaemon>);

/// One message as the JSON object of a frame (PROTOCOL.md lists the fields); never longer than
/// kFrameBytesMax. Text that is not UTF-8, such as a worker's output, is carried with replacement
/// characters. Requires that names be at most kNameBytesMax.
[[nodiscard]] std::string encode(const rendezvous::FromAgent& message);
[[nodiscard]] std::string encode(const rendezvous::FromDaemon& message);

/// Decode a payload. Unknown fields are ignored. An unknown type, a missing or malformed field, or
/// another protocol version is a Failure `invalid_argument` that names it.
[[nodiscard]] Result<rendezvous::FromAgent> decode_from_agent(std::string_view payload);
[[nodiscard]] Result<rendezvous::FromDaemon> decode_from_daemon(std::string_view payload);
/// Whether it is a message of a type that this release does not know. An agent ignores it: a newer
/// daemon sends such messages only to tell people something.
[[nodiscard]] bool is_of_unknown_type(std::string_view payload);

}  // namespace regroup::protocol
