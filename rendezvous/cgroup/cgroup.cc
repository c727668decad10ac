// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/cgroup/cgroup.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <sstream>
#include <string_view>
#include <system_error>

namespace regroup::cgroup {
namespace {

namespace fs = std::filesystem;

/// All v1 controllers are named in a list, "cpu,cpuacct".
bool has_word(const std::string& list, const std::string& word) {
    return ("," + list + ",").find("," + word + ",") != std::string::npos;
}

/// /proc/self/mountinfo writes a blank as "\040", and so on.
std::string unescape(const std::string& text) {
    std::string plain;
    for (std::size_t at = 0; at < text.size(); ++at) {
        unsigned code = 0;
        const char* const digits = text.data() + at + 1;
        if (text[at] == '\\' && at + 3 < text.size() &&
            std::from_chars(digits, digits + 3, code, 8).ptr == digits + 3 && code < 128) {
            plain += static_cast<char>(code);
            at += 3;
        } else {
            plain += text[at];
        }
    }
    return plain;
}

/// The words of a line; empty views beyond the last one.
template <std::size_t Count>
std::array<std::string_view, Count> words_of(std::string_view line) {
    std::array<std::string_view, Count> words;
    for (std::string_view& word : words) {
        line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
        word = line.substr(0, line.find(' '));
        line.remove_prefix(word.size());
    }
    return words;
}

std::string content_of(const fs::path& file) {
    std::ostringstream content;
    content << std::ifstream(file).rdbuf();
    return std::move(content).str();
}

/// Calls `look` for each line, until that returns true.
void find_line(std::string_view text, const std::function<bool(std::string_view)>& look) {
    while (!text.empty()) {
        const std::string_view line = text.substr(0, text.find('\n'));
        if (look(line)) {
            return;
        }
        text.remove_prefix(std::min(line.size() + 1, text.size()));
    }
}

struct Mount {
    std::string source;  ///< The folder of the file system that is mounted.
    std::string target;  ///< The mount point.
};

std::optional<Mount> find_mount(std::string_view mounts, const std::string& controller) {
    std::optional<Mount> found;
    // "31 23 0:28 / /sys/fs/cgroup rw,relatime shared:9 - cgroup cgroup rw,memory"
    find_line(mounts, [&](std::string_view line) {
        const std::size_t dash = line.find(" - cgroup");
        if (dash == line.npos) {
            return false;
        }
        const auto [type, device, options] = words_of<3>(line.substr(dash + 3));
        if (controller.empty() ? type == "cgroup2"
                               : type == "cgroup" && has_word(std::string(options), controller)) {
            const auto words = words_of<5>(line);
            found = Mount{unescape(std::string(words[3])), unescape(std::string(words[4]))};
        }
        return found.has_value();
    });
    return found;
}

/// Our path in the hierarchy.
std::optional<std::string> find_path(std::string_view groups, const std::string& controller) {
    std::optional<std::string> found;
    // "4:memory:/job/7", or "0::/job/7" for v2.
    find_line(groups, [&](std::string_view line) {
        const std::size_t first = line.find(':');
        const std::size_t second = line.find(':', first == line.npos ? line.npos : first + 1);
        if (second != line.npos) {
            const std::string controllers(line.substr(first + 1, second - first - 1));
            if (controller.empty() ? controllers.empty() : has_word(controllers, controller)) {
                found = line.substr(second + 1);
            }
        }
        return found.has_value();
    });
    return found;
}

/// Calls `look` for the group of this process and for each above it.
void for_each_level(const Hierarchies& all, const std::string& controller,
                    const std::function<void(const fs::path&)>& look) {
    const std::optional<Group> group = all.find(controller);
    if (!group) {
        return;
    }
    for (fs::path folder = group->folder;; folder = folder.parent_path()) {
        look(folder);
        if (folder == group->top || !folder.has_relative_path()) {
            return;
        }
    }
}

/// Nothing for "max", too.
std::optional<std::uint64_t> number_in(const fs::path& file) {
    std::ifstream stream(file);
    std::uint64_t number = 0;
    return stream >> number ? std::optional(number) : std::nullopt;
}

/// Of microseconds. -1 or "max": no quota.
struct Quota {
    std::int64_t quota = -1;
    std::int64_t period = 0;
};

Quota quota_of_version_2(const fs::path& folder) {
    Quota found;
    std::ifstream stream(folder / "cpu.max");  // "150000 100000", "max 100000"
    return stream >> found.quota >> found.period ? found : Quota();
}

Quota quota_of_version_1(const fs::path& folder) {
    Quota found;
    const bool is_read =
        static_cast<bool>(std::ifstream(folder / "cpu.cfs_quota_us") >> found.quota) &&
        static_cast<bool>(std::ifstream(folder / "cpu.cfs_period_us") >> found.period);
    return is_read ? found : Quota();
}

struct MemoryFiles {
    const char* controller;
    const char* limit;
    const char* used;
    const char* reclaimable;  ///< A line of memory.stat.
};

/// In version 1, the largest number of whole pages means no limit.
constexpr std::uint64_t kUnlimited = std::uint64_t{1} << 62U;

}  // namespace

std::optional<std::uint64_t> read_count(const fs::path& file, const std::string& name) {
    std::ifstream lines(file);
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with(name + " ")) {
            const char* const begin = line.data() + name.size() + 1;
            std::uint64_t count = 0;
            const auto [end, error] = std::from_chars(begin, line.data() + line.size(), count);
            if (error == std::errc()) {
                return count;
            }
        }
    }
    return std::nullopt;
}

Hierarchies::Hierarchies(const fs::path& root)
    : root_(root),
      mounts_(content_of(root / "proc/self/mountinfo")),
      groups_(content_of(root / "proc/self/cgroup")) {}

std::optional<Group> Hierarchies::find(const std::string& controller) const {
    const auto mount = find_mount(mounts_, controller);
    const auto path = mount ? find_path(groups_, controller) : std::nullopt;
    if (!path) {
        return std::nullopt;
    }
    const fs::path target = root_ / fs::path(mount->target).relative_path();
    const fs::path inside = fs::path(*path).lexically_relative(mount->source);
    const bool outside = inside.empty() || *inside.begin() == "..";
    const fs::path folder = (target / inside).lexically_normal();
    return Group{outside || inside == "." ? target : folder, target};
}

std::uint32_t CpuQuota::rounded_up() const noexcept {
    constexpr double kMost = 1U << 24U;
    return static_cast<std::uint32_t>(std::max(1.0, std::min(std::ceil(cpus), kMost)));
}

std::optional<CpuQuota> cpu_quota(const fs::path& root) {
    std::optional<CpuQuota> least;
    const auto consider = [&](const fs::path& folder, const Quota& found) {
        if (found.quota <= 0 || found.period <= 0) {
            return;
        }
        const double cpus = static_cast<double>(found.quota) / static_cast<double>(found.period);
        if (!least || cpus < least->cpus) {
            least = CpuQuota{folder, cpus};
        }
    };
    const Hierarchies all(root);
    for_each_level(all, "",
                   [&](const fs::path& folder) { consider(folder, quota_of_version_2(folder)); });
    for_each_level(all, "cpu",
                   [&](const fs::path& folder) { consider(folder, quota_of_version_1(folder)); });
    return least;
}

std::optional<std::uint64_t> memory_left(const fs::path& root) {
    const Hierarchies all(root);
    std::optional<std::uint64_t> least;
    for (const MemoryFiles& files :
         {MemoryFiles{"", "memory.max", "memory.current", "inactive_file"},
          MemoryFiles{"memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                      "total_inactive_file"}}) {
        for_each_level(all, files.controller, [&](const fs::path& folder) {
            const auto limit = number_in(folder / files.limit);
            // Without a limit the usage does not matter, and is slow to read.
            const auto used = limit && *limit < kUnlimited ? number_in(folder / files.used)
                                                           : std::optional<std::uint64_t>();
            if (!used) {
                return;
            }
            const std::uint64_t reclaimable =
                read_count(folder / "memory.stat", files.reclaimable).value_or(0);
            const std::uint64_t kept = *used - std::min(*used, reclaimable);
            const std::uint64_t left = *limit - std::min(*limit, kept);
            least = std::min(left, least.value_or(left));
        });
    }
    return least;
}

std::uint64_t node_memory_left(const fs::path& root) {
    std::uint64_t left = std::numeric_limits<std::uint64_t>::max();
    std::ifstream words(root / "proc/meminfo");
    std::string name;
    for (std::uint64_t kibibytes = 0; words >> name;) {
        if (name == "MemAvailable:" && words >> kibibytes) {
            left = kibibytes * 1024;
            break;
        }
    }
    return std::min(left, memory_left(root).value_or(left));
}

std::optional<TaskLimit> task_limit(const fs::path& root) {
    const Hierarchies all(root);
    std::optional<TaskLimit> least;
    for (const char* controller : {"", "pids"}) {
        for_each_level(all, controller, [&](const fs::path& folder) {
            const auto most = number_in(folder / "pids.max");
            const auto used = number_in(folder / "pids.current");
            if (!most || !used) {
                return;
            }
            const TaskLimit limit{folder, *most, *used};
            if (!least || limit.left() < least->left()) {
                least = limit;
            }
        });
    }
    return least;
}

}  // namespace regroup::cgroup
