// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core/agent_core.h"
#include "rendezvous/core/messages.h"

namespace regroup::test {

/// One message as one line for people: "report round 3 running", "stop round 3: node c joined".
[[nodiscard]] std::string to_line(const rendezvous::FromAgent& message);
[[nodiscard]] std::string to_line(const rendezvous::FromDaemon& message);
/// The name of the message alone: "join", "assign".
[[nodiscard]] std::string_view kind_of(const rendezvous::FromAgent& message);
[[nodiscard]] std::string_view kind_of(const rendezvous::FromDaemon& message);

/// Carries out one command of a transcript and returns what happened, one line each.
using Interpreter = std::function<std::vector<std::string>(const std::string& command)>;

/// Runs the transcript at `path` and returns its expected text: prose ("# ...") and commands
/// unchanged, and after each block of commands "----" and the answers of `interpreter`. Returns an
/// empty text if the file cannot be read.
[[nodiscard]] std::string play(const std::string& path, const Interpreter& interpreter);

/// Runs the transcript and compares. Returns an empty text if it matches, otherwise the first lines
/// that differ. With REGROUP_REWRITE=1 in the environment it rewrites the file instead.
[[nodiscard]] std::string check_transcript(const std::string& path, const Interpreter& interpreter);

}  // namespace regroup::test
