// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace regroup {

// The limits of the control group (cgroup, version 1 or 2) of this process, set by a container or a
// batch system; the tightest limit of its group and those above counts. `root` is the folder with
// proc and sys.

/// Bytes up to the limit, including memory that the kernel can reclaim at once. Without a limit,
/// the largest number.
[[nodiscard]] std::size_t control_group_memory_left(const std::filesystem::path& root = "/");

/// Bytes of memory that are left to the machine and to this process's control group. If the kernel
/// does not tell, the largest number.
[[nodiscard]] std::size_t available_memory_bytes();

/// The processors that the processes of a group may use together.
struct ProcessorQuota {
    std::uint64_t group = 0;       ///< Identifies the group on this machine; 0: no limit.
    std::uint64_t processors = 0;  ///< Rounded to whole processors, at least 1.
};
[[nodiscard]] ProcessorQuota control_group_processors(const std::filesystem::path& root = "/");

}  // namespace regroup
