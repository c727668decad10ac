// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

#include "rendezvous/base/result.h"

namespace regroup::agent {

/// "`what`: <text of `error_number`>", for a step of starting a program. Code `overloaded` if the
/// same start may succeed later: the node is short of processes, memory or descriptors, or the file
/// of the program is busy or out of reach. Else `system`. For EAGAIN it names the limit on
/// processes.
[[nodiscard]] Failure start_failure(const std::string& what, int error_number);

/// The limit because of which this process can start no other: that of a full cgroup, else that of
/// the user, with its value. Empty if there is none. `root` is the folder with proc and all mount
/// points.
[[nodiscard]] std::string reached_process_limit(const std::filesystem::path& root = "/");

}  // namespace regroup::agent
