// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace regroup::agent {

inline constexpr std::size_t kFramesShown = 6;

/// The innermost functions of a process's first thread, from a file of StackSaver: the output of
/// eu-stack or gdb for the process `pid`, or of py-spy, which shows the functions of Python with
/// their lines, if it is there. Empty without such an output. At most `most` names.
[[nodiscard]] std::vector<std::string> top_frames(std::string_view text, long pid,
                                                  std::size_t most = kFramesShown);

}  // namespace regroup::agent
