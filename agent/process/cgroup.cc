// SPDX-License-Identifier: Apache-2.0
#include "agent/process/cgroup.h"

#include <charconv>
#include <fstream>
#include <sstream>
#include <system_error>

namespace regroup::agent {
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

struct Mount {
    std::string source;  ///< The folder of the file system that is mounted.
    std::string target;  ///< The mount point.
};

/// The mount of version 2 ("cgroup2"), or of version 1 with this controller ("cgroup").
std::optional<Mount> find_mount(const fs::path& root, const std::string& type,
                                const std::string& controller) {
    std::ifstream lines(root / "proc/self/mountinfo");
    for (std::string line; std::getline(lines, line);) {
        // "31 23 0:28 / /sys/fs/cgroup rw,relatime shared:9 - cgroup cgroup rw,memory"
        const std::size_t dash = line.find(" - ");
        if (dash == std::string::npos) {
            continue;
        }
        std::istringstream before(line.substr(0, dash));
        std::istringstream after(line.substr(dash + 3));
        std::string skipped;
        Mount mount;
        std::string mounted_type;
        std::string options;
        before >> skipped >> skipped >> skipped >> mount.source >> mount.target;
        after >> mounted_type >> skipped >> options;
        if (mounted_type == type && (type == "cgroup2" || has_word(options, controller))) {
            return Mount{unescape(mount.source), unescape(mount.target)};
        }
    }
    return std::nullopt;
}

/// Our path in the hierarchy of cgroups of this type.
std::optional<std::string> find_path(const fs::path& root, const std::string& type,
                                     const std::string& controller) {
    std::ifstream lines(root / "proc/self/cgroup");
    for (std::string line; std::getline(lines, line);) {
        // "4:memory:/job/7", or "0::/job/7" for v2.
        const std::size_t first = line.find(':');
        const std::size_t second = line.find(':', first == line.npos ? line.npos : first + 1);
        if (second == line.npos) {
            continue;
        }
        const std::string controllers = line.substr(first + 1, second - first - 1);
        if (type == "cgroup2" ? controllers.empty() : has_word(controllers, controller)) {
            return line.substr(second + 1);
        }
    }
    return std::nullopt;
}

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

std::optional<Cgroup> find_cgroup(const fs::path& root, const std::string& type,
                                  const std::string& controller) {
    const auto mount = find_mount(root, type, controller);
    const auto cgroup = find_path(root, type, controller);
    if (!mount || !cgroup) {
        return std::nullopt;
    }
    const fs::path target = root / fs::path(mount->target).relative_path();
    const fs::path inside = fs::path(*cgroup).lexically_relative(mount->source);
    const bool outside = inside.empty() || *inside.begin() == "..";
    return Cgroup{outside ? target : (target / inside).lexically_normal(), target};
}

std::optional<Cgroup> find_memory_cgroup(const fs::path& root, const std::string& type) {
    return find_cgroup(root, type, "memory");
}

}  // namespace regroup::agent
