// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace regroup {

// What the control group (cgroup, version 1 or 2) of this process allows it, as a container or a
// batch system sets it; the tightest of its group and those above counts. `root` is where /proc and
// /sys lie.

/// Bytes up to the limit, what the kernel would give back at once included; the largest number
/// there is without a limit.
[[nodiscard]] std::size_t control_group_memory_left(const std::filesystem::path& root = "/");

/// Bytes of memory that the machine and this process's control group have left, as far as the
/// kernel tells; the largest number there is if it does not.
[[nodiscard]] std::size_t available_memory_bytes();

/// Processor time per time, which the processes of a group have together.
struct ProcessorQuota {
    std::uint64_t group = 0;       ///< Tells groups of this machine apart; 0: there is no limit.
    std::uint64_t processors = 0;  ///< Whole ones, and at least 1.
};
[[nodiscard]] ProcessorQuota control_group_processors(const std::filesystem::path& root = "/");

}  // namespace regroup
