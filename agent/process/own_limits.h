// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <sys/resource.h>
#include <vector>

#include "rendezvous/base/result.h"

namespace regroup::agent {

/// Raises this process's limit on open descriptors as far as it may: the usual 1,024 is too low for
/// a process that serves thousands of connections. Programs that a LinuxLauncher starts keep the
/// limit from before. Call it on the thread that starts programs.
void raise_descriptor_limit() noexcept;

/// Makes sure that this process may have `needed` descriptors open, by raise_descriptor_limit() if
/// the limit is lower. Errors: system, with both numbers, if it may not be raised so far.
[[nodiscard]] Result<void> require_descriptors(std::uint64_t needed);

/// The limit from before; nothing if it was not raised.
[[nodiscard]] std::optional<rlimit> descriptor_limit_of_programs() noexcept;

/// Ignores the signals by which the kernel ends a process at a limit of the user: SIGXFSZ (ulimit
/// -f) and SIGXCPU (ulimit -t). A write then fails with EFBIG, as on a full disk. Programs that a
/// LinuxLauncher starts get these signals as this process did before. Call it first in main().
void outlive_limits() noexcept;

/// Those that this process ignores because of outlive_limits().
[[nodiscard]] const std::vector<int>& ignored_limit_signals() noexcept;

}  // namespace regroup::agent
