// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>
#include <string>

namespace regroup::agent {

/// How a process ended. Exit code 9 and SIGKILL are different things here, as they are to users.
struct ExitStatus {
    int exit_code = 0;         ///< Meaningful when `signal` is 0.
    int signal = 0;            ///< The signal that ended it, or 0.
    bool core_dumped = false;

    /// From what waitid reports of a process that has ended.
    [[nodiscard]] static ExitStatus from(const siginfo_t& info) noexcept;

    [[nodiscard]] bool success() const noexcept { return signal == 0 && exit_code == 0; }
    /// "exited with code 3", "ended by signal 11, core dumped".
    [[nodiscard]] std::string describe() const;

    friend bool operator==(const ExitStatus&, const ExitStatus&) = default;
};

}  // namespace regroup::agent
