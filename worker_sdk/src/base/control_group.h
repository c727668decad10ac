// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace regroup {

/// Bytes of memory that are left to the machine and to this process's control group. If the kernel
/// does not tell, the largest number.
[[nodiscard]] std::size_t available_memory_bytes();

/// The processors that the processes of a control group (cgroup) may use together.
struct ProcessorQuota {
    std::uint64_t group = 0;       ///< Identifies the group on this machine; 0: no limit.
    std::uint64_t processors = 0;  ///< Rounded to whole processors, at least 1.
};
/// The smallest quota of the groups of this process. `root`: the folder with proc and all mounts.
[[nodiscard]] ProcessorQuota control_group_processors(const std::filesystem::path& root = "/");

}  // namespace regroup
