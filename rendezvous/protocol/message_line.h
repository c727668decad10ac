// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "rendezvous/core/messages.h"

namespace regroup::protocol {

/// The name of the message, as its `type` on the wire: "join", "assign".
[[nodiscard]] std::string_view kind_of(const rendezvous::FromAgent& message);
[[nodiscard]] std::string_view kind_of(const rendezvous::FromDaemon& message);

/// The message as one line for people, its name first: "report running, round 3", "stop round 3:
/// node c joined". For transcripts; never parsed.
[[nodiscard]] std::string to_line(const rendezvous::FromAgent& message);
[[nodiscard]] std::string to_line(const rendezvous::FromDaemon& message);

/// A report without the message name: "running, round 3".
[[nodiscard]] std::string to_line(const rendezvous::NodeReport& report);

}  // namespace regroup::protocol
