// SPDX-License-Identifier: Apache-2.0
#include "agent/process/memory_room.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <fstream>
#include <limits>
#include <optional>
#include <system_error>
#include <unistd.h>

#include "agent/process/cgroup.h"

namespace regroup::agent {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

/// Nothing also for "max".
std::optional<std::uint64_t> read_number(const fs::path& file) {
    std::ifstream stream(file);
    std::uint64_t number = 0;
    return stream >> number ? std::optional(number) : std::nullopt;
}

/// How a version of cgroups calls its files.
struct Names {
    const char* type;
    const char* limit;
    const char* used;
    const char* cache;  ///< In memory.stat: what is given back as soon as it is wanted.
};
constexpr Names kNames[] = {
    {"cgroup2", "memory.max", "memory.current", "inactive_file"},
    {"cgroup", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}};

std::uint64_t left_in(const fs::path& folder, const Names& names) {
    const auto limit = read_number(folder / names.limit);
    const auto used = read_number(folder / names.used);
    if (!limit || !used) {
        return kUnlimited;
    }
    const std::uint64_t cache = read_count(folder / "memory.stat", names.cache).value_or(0);
    const std::uint64_t needed = *used - std::min(*used, cache);
    return *limit - std::min(*limit, needed);
}

/// The least that any cgroup of ours leaves.
std::uint64_t left_in_cgroups(const fs::path& root) {
    std::uint64_t left = kUnlimited;
    for (const Names& names : kNames) {
        const auto cgroup = find_memory_cgroup(root, names.type);
        if (!cgroup) {
            continue;
        }
        fs::path folder = cgroup->folder;
        left = std::min(left, left_in(folder, names));
        while (folder != cgroup->top && folder.has_relative_path()) {
            folder = folder.parent_path();
            left = std::min(left, left_in(folder, names));
        }
    }
    return left;
}

std::uint64_t available_on_machine(const fs::path& root) {
    std::ifstream lines(root / "proc/meminfo");
    for (std::string word; lines >> word;) {
        std::uint64_t kilobytes = 0;
        if (word == "MemAvailable:" && lines >> kilobytes) {
            return kilobytes << 10U;
        }
    }
    return 0;
}

std::uint64_t resident_bytes(const fs::path& process) {
    std::ifstream statm(process / "statm");
    std::uint64_t size = 0;
    std::uint64_t pages = 0;
    return statm >> size >> pages ? pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) : 0;
}

/// "/dev/nvidia0", but not "/dev/nvidiactl", which needs no memory.
std::string open_gpu(const fs::path& process) {
    constexpr std::string_view kGpu = "/dev/nvidia";
    std::error_code error;
    for (fs::directory_iterator file(process / "fd", error), end; !error && file != end;
         file.increment(error)) {
        std::error_code closed;
        const std::string target = fs::read_symlink(file->path(), closed).string();
        if (target.starts_with(kGpu) && target.size() > kGpu.size() &&
            std::isdigit(static_cast<unsigned char>(target[kGpu.size()])) != 0) {
            return target;
        }
    }
    return "";
}

std::string in_units(std::uint64_t bytes) {
    constexpr double kMebi = 1 << 20;
    constexpr double kGibi = 1 << 30;
    const auto number = static_cast<double>(bytes);
    char text[32];
    if (number < kGibi) {
        std::snprintf(text, sizeof text, "%.0f MiB", number / kMebi);
    } else {
        std::snprintf(text, sizeof text, "%.1f GiB", number / kGibi);
    }
    return text;
}

}  // namespace

bool MemoryRoom::is_enough() const noexcept {
    return device.empty() && held_bytes + held_bytes / 10 <= free_bytes;
}

std::string MemoryRoom::text() const {
    return device.empty()
               ? "they hold " + in_units(held_bytes) + " and " + in_units(free_bytes) + " are free"
               : "they have " + device + " open";
}

MemoryRoom measure_room(const std::vector<pid_t>& processes, const fs::path& root) {
    MemoryRoom room;
    room.free_bytes = std::min(available_on_machine(root), left_in_cgroups(root));
    for (const pid_t pid : processes) {
        const fs::path process = root / "proc" / std::to_string(pid);
        room.held_bytes += resident_bytes(process);
        if (room.device.empty()) {
            room.device = open_gpu(process);
        }
    }
    return room;
}

}  // namespace regroup::agent
