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

/// Plays the transcript at `path` and returns the text that it should be: prose ("# ...") and
/// commands as they are, and below each block of commands, after "----", what `interpreter` says.
/// Returns an empty text when the file cannot be read.
[[nodiscard]] std::string play(const std::string& path, const Interpreter& interpreter);

/// Plays the transcript and compares. An empty text means that it matched; else the first lines
/// that differ. With REGROUP_REWRITE=1 in the environment the file is rewritten instead.
[[nodiscard]] std::string check_transcript(const std::string& path, const Interpreter& interpreter);

}  // namespace regroup::test
