// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace regroup {

/// What a program knows about its own end that its launcher cannot see.
enum class FatalKind : std::uint8_t {
    user_error,  ///< Trying again cannot help: a wrong flag, a missing file. Ends the job.
    retry,       ///< Not the program's fault: a storage that was away. Costs no restart.
    bad_node,    ///< This machine is not to be trusted: it is set aside, another takes its place.
};

/// Ends this process, all of its threads, at once; tells the agent the kind and `text` (a sentence,
/// shown in the failure report). The exit code is 78, 75 or 76, which the launcher's --on-exit
/// understands by default, so that the kind is also known where there is no agent. `text` goes to
/// stderr as well. Runs no destructors and no exit handlers. Any thread.
[[noreturn]] void report_fatal(FatalKind kind, std::string_view text) noexcept;

}  // namespace regroup
