// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

namespace regroup::agent {

/// Ignores the signals by which the kernel ends a process at a limit of the user: SIGXFSZ (ulimit
/// -f) and SIGXCPU (ulimit -t). A write then fails with EFBIG, as on a full disk. Programs that a
/// LinuxLauncher starts get these signals as this process did before. Call it first in main().
void outlive_limits() noexcept;

/// Those that this process ignores because of outlive_limits().
[[nodiscard]] const std::vector<int>& ignored_limit_signals() noexcept;

}  // namespace regroup::agent
