// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace regroup::agent {

/// The cgroup of this process in one hierarchy, as far as it is mounted.
struct Cgroup {
    std::filesystem::path folder;
    std::filesystem::path top;  ///< The mount point: `folder` or a folder above it.
};

/// The cgroup of version 2 ("cgroup2"), or of version 1 with this controller ("cgroup"). `root` is
/// the folder with proc and all mount points. Nothing if there is no such cgroup. In a container
/// the mount may show a part of the hierarchy, with our own cgroup as its top.
[[nodiscard]] std::optional<Cgroup> find_cgroup(const std::filesystem::path& root,
                                                const std::string& type,
                                                const std::string& controller);
/// With the memory controller.
[[nodiscard]] std::optional<Cgroup> find_memory_cgroup(const std::filesystem::path& root,
                                                       const std::string& type);

/// The number after `name` and a blank at the start of a line of a file.
[[nodiscard]] std::optional<std::uint64_t> read_count(const std::filesystem::path& file,
                                                      const std::string& name);

}  // namespace regroup::agent
