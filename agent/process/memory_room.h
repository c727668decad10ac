// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <sys/types.h>
#include <vector>

namespace regroup::agent {

/// What processes hold, and whether the machine could give as much again to others.
struct MemoryRoom {
    std::uint64_t held_bytes = 0;  ///< Resident; what several share is counted for each.
    /// That this process's cgroups and the machine would give without swapping.
    std::uint64_t free_bytes = 0;
    std::string device;  ///< A GPU that one of them has open: its memory cannot be promised.

    /// With a tenth to spare.
    [[nodiscard]] bool is_enough() const noexcept;
    /// "they hold 12.1 GiB and 8.0 GiB are free", "they have /dev/nvidia0 open".
    [[nodiscard]] std::string text() const;
};

/// Reads a few small files, and some for each of `processes`; one that is gone holds nothing.
/// `root`: below it lie proc and all mount points.
[[nodiscard]] MemoryRoom measure_room(const std::vector<pid_t>& processes,
                                      const std::filesystem::path& root = "/");

}  // namespace regroup::agent
