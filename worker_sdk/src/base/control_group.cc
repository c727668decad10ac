// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/base/control_group.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <sys/stat.h>

namespace regroup {
namespace {

namespace fs = std::filesystem;

/// In version 1, the largest number of whole pages means no limit.
constexpr std::uint64_t kUnlimited = std::uint64_t{1} << 62U;
constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

/// The path of this process in the hierarchy with this controller; "" means version 2.
std::string own_path(const fs::path& root, const std::string& controller) {
    std::ifstream lines(root / "proc/self/cgroup");
    for (std::string line; std::getline(lines, line);) {  // "4:memory:/job/17"
        std::istringstream fields(line);
        std::string number;
        std::string controllers;
        std::string path;
        if (std::getline(fields, number, ':') && std::getline(fields, controllers, ':') &&
            std::getline(fields, path) &&
            (controller.empty()
                 ? controllers.empty()
                 : ("," + controllers + ",").find("," + controller + ",") != std::string::npos)) {
            return path;
        }
    }
    return {};
}

/// Calls `look` for the group of this process and those above it. In a container the path may be
/// that of the host, of which only the top is visible.
void for_each_level(const fs::path& root, const std::string& controller,
                    const std::function<void(const fs::path&)>& look) {
    const fs::path mount =
        controller.empty() ? root / "sys/fs/cgroup" : root / "sys/fs/cgroup" / controller;
    const std::string path = own_path(root, controller);
    if (path.empty()) {
        return;
    }
    fs::path level = fs::path(path).relative_path().lexically_normal();
    if (!level.empty() && *level.begin() == "..") {
        level.clear();  // The group is outside this namespace.
    }
    for (; level.has_relative_path() && level != "."; level = level.parent_path()) {
        look(mount / level);
    }
    look(mount);
}

std::optional<std::uint64_t> number_in(const fs::path& file) {
    std::ifstream stream(file);
    std::uint64_t number = 0;
    return stream >> number ? std::optional(number) : std::nullopt;  // "max" is no number.
}

std::uint64_t entry_in(const fs::path& file, const std::string& name) {
    std::ifstream stream(file);
    std::string word;
    for (std::uint64_t number = 0; stream >> word >> number;) {
        if (word == name) {
            return number;
        }
    }
    return 0;
}

struct MemoryFiles {
    const char* controller;
    const char* limit;
    const char* usage;
    const char* reclaimable;  ///< In memory.stat.
};

std::uint64_t inode_of(const fs::path& folder) {
    struct stat facts{};
    return ::stat(folder.c_str(), &facts) == 0 ? facts.st_ino : 0;
}

}  // namespace

std::size_t control_group_memory_left(const fs::path& root) {
    std::size_t left = kNoLimit;
    for (const MemoryFiles& files :
         {MemoryFiles{"", "memory.max", "memory.current", "inactive_file"},
          MemoryFiles{"memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                      "total_inactive_file"}}) {
        for_each_level(root, files.controller, [&](const fs::path& folder) {
            const auto limit = number_in(folder / files.limit);
            if (!limit || *limit >= kUnlimited) {
                return;  // Without a limit the usage does not matter, and is slow to read.
            }
            const auto usage = number_in(folder / files.usage);
            if (!usage) {
                return;
            }
            const std::uint64_t needed =
                *usage - std::min(*usage, entry_in(folder / "memory.stat", files.reclaimable));
            left = std::min<std::size_t>(left, *limit - std::min(*limit, needed));
        });
    }
    return left;
}

ProcessorQuota control_group_processors(const fs::path& root) {
    ProcessorQuota tightest;
    const auto consider = [&](const fs::path& folder, std::uint64_t quota, std::uint64_t period) {
        const std::uint64_t processors = std::max<std::uint64_t>(1, quota / period);
        if (tightest.group == 0 || processors < tightest.processors) {
            tightest = {.group = inode_of(folder), .processors = processors};
        }
    };
    for_each_level(root, "", [&](const fs::path& folder) {
        std::ifstream stream(folder / "cpu.max");  // "150000 100000", "max 100000"
        std::uint64_t quota = 0;
        std::uint64_t period = 0;
        if (stream >> quota >> period && period > 0) {
            consider(folder, quota, period);
        }
    });
    for_each_level(root, "cpu", [&](const fs::path& folder) {
        std::ifstream stream(folder / "cpu.cfs_quota_us");  // -1: none
        std::int64_t quota = 0;
        const auto period = number_in(folder / "cpu.cfs_period_us");
        if (stream >> quota && quota > 0 && period.value_or(0) > 0) {
            consider(folder, static_cast<std::uint64_t>(quota), *period);
        }
    });
    return tightest;
}

std::size_t available_memory_bytes() {
    const std::size_t allowed = control_group_memory_left();
    std::ifstream file("/proc/meminfo");
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string name;
        std::size_t kibibytes = 0;
        if (words >> name >> kibibytes && name == "MemAvailable:") {
            return std::min(allowed, kibibytes * 1024);
        }
    }
    return allowed;
}

}  // namespace regroup
