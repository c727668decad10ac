// SPDX-License-Identifier: Apache-2.0
//
// The limits of the control groups (cgroups, version 1 and 2) that this process is in, set by a
// container, a pod or a batch system. A limit of a group holds for all groups below it, so each
// function looks at the group of this process and at those above it, as far as they are mounted.
// In a container the mount may show a part of the hierarchy, with our own group as its top.
//
// `root` is the folder with proc and all mount points. The functions read a few small files of the
// kernel and never fail: what cannot be read is no limit. Any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace regroup::cgroup {

/// The group of this process in one hierarchy.
struct Group {
    std::filesystem::path folder;
    std::filesystem::path top;  ///< The mount point: `folder` or a folder above it.
};

/// All hierarchies, as /proc/self describes them; read once.
class Hierarchies {
   public:
    explicit Hierarchies(const std::filesystem::path& root);

    /// The hierarchy of version 1 with this controller, such as "memory"; "" means version 2.
    /// Nothing if it is not mounted.
    [[nodiscard]] std::optional<Group> find(const std::string& controller) const;

   private:
    std::filesystem::path root_;
    std::string mounts_;
    std::string groups_;
};

/// The number after `name` and a blank at the start of a line of a file.
[[nodiscard]] std::optional<std::uint64_t> read_count(const std::filesystem::path& file,
                                                      const std::string& name);

/// How many CPUs all processes of a group may use at the same time, on average.
struct CpuQuota {
    std::filesystem::path folder;  ///< The group with the limit.
    double cpus = 0;               ///< Above 0; 2.5 means two and a half.

    /// For a number of workers or threads; at least 1.
    [[nodiscard]] std::uint32_t rounded_up() const noexcept;
};

/// The smallest quota; nothing without any.
[[nodiscard]] std::optional<CpuQuota> cpu_quota(const std::filesystem::path& root = "/");

/// Bytes up to the limit that is closest, including those that the kernel can reclaim at once.
/// Nothing without any limit.
[[nodiscard]] std::optional<std::uint64_t> memory_left(const std::filesystem::path& root = "/");
/// The bytes of memory that this node has left: the kernel's estimate, within those limits.
[[nodiscard]] std::uint64_t node_memory_left(const std::filesystem::path& root = "/");

/// A limit of the number of processes and threads.
struct TaskLimit {
    std::filesystem::path folder;  ///< The group with the limit.
    std::uint64_t most = 0;
    std::uint64_t used = 0;

    [[nodiscard]] std::uint64_t left() const noexcept { return most - (used < most ? used : most); }
};

/// The limit with the fewest left; nothing without any.
[[nodiscard]] std::optional<TaskLimit> task_limit(const std::filesystem::path& root = "/");

}  // namespace regroup::cgroup
