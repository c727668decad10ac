// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>
#include <string>

namespace regroup::agent {

/// How a process ended: with an exit code, or by a signal. `exit(9)` and SIGKILL differ.
struct ExitStatus {
    int exit_code = 0;  ///< 0 to 255; -1 when a signal ended it.
    int signal = 0;     ///< 0 when it exited by itself.
    bool core_dumped = false;

    [[nodiscard]] static ExitStatus exited(int code) noexcept;
    [[nodiscard]] static ExitStatus signalled(int number, bool core_dumped) noexcept;

    /// The status in the `info` of waitid(2).
    [[nodiscard]] static ExitStatus from_siginfo(const siginfo_t& info) noexcept;

    [[nodiscard]] bool success() const noexcept { return exit_code == 0; }

    /// "exited with code 9", "was ended by SIGKILL", "was ended by SIGSEGV (core dumped)".
    [[nodiscard]] std::string describe() const;

    friend bool operator==(const ExitStatus&, const ExitStatus&) = default;
};

/// Ends this process as another one ended: with the same exit code, or by the same signal, so that
/// the parent sees it. Writes no core file. Destructors and atexit functions do not run.
[[noreturn]] void end_like(const ExitStatus& status) noexcept;

}  // namespace regroup::agent
