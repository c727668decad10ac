// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace regroup {

/// The kind of a failure, which the launcher cannot see by itself.
enum class FatalKind : std::uint8_t {
    user_error,  ///< A restart cannot help: a wrong flag, a missing file. Ends the job.
    retry,       ///< Not the program's fault: a storage was unavailable. Costs no restart.
    bad_node,    ///< The node is faulty: it is quarantined, and another one replaces it.
};

/// Ends this process with all of its threads at once, and tells the agent the kind and `text`, a
/// sentence that the failure report shows. The exit code is 78, 75 or 76, in the order of
/// FatalKind. The launcher's --on-exit understands these codes by default, so the kind is also
/// known without an agent. `text` is also written to stderr. Runs no destructors and no exit
/// handlers. Any thread.
[[noreturn]] void report_fatal(FatalKind kind, std::string_view text) noexcept;

}  // namespace regroup
