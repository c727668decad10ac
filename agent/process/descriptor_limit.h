// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <sys/resource.h>

namespace regroup::agent {

/// Raises this process's limit on open descriptors as far as it may: the usual 1,024 is too low for
/// a process that serves thousands of connections. Programs that a LinuxLauncher starts keep the
/// limit from before. Call it on the thread that starts programs.
void raise_descriptor_limit() noexcept;

/// The limit from before; nothing if it was not raised.
[[nodiscard]] std::optional<rlimit> descriptor_limit_of_programs() noexcept;

}  // namespace regroup::agent
