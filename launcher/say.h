// SPDX-License-Identifier: Apache-2.0
//
// The lines that commands print for people. Their texts may come from other hosts, so they are
// printed by printable(). A process with jobs uses agent::OutputRelay or agent::LineWriter
// instead, which never wait for a reader.
#pragma once

#include <string>
#include <vector>

namespace regroup::launcher {

/// Prints "`who`: `line`" on stderr.
void complain(const std::string& who, const std::string& line);

/// Prints on stdout.
void print(const std::string& line);
void print(const std::vector<std::string>& lines);

}  // namespace regroup::launcher
