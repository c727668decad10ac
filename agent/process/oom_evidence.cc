// SPDX-License-Identifier: Apache-2.0
#include "agent/process/oom_evidence.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <fcntl.h>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace regroup::agent {
namespace {

namespace fs = std::filesystem;

/// The number after `name` and a blank at the start of a line.
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
    std::string target;  ///< Where.
};

/// Where cgroups are mounted: v2's ("cgroup2"), or v1's with memory ("cgroup").
std::optional<Mount> find_mount(const fs::path& root, const std::string& type) {
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
        if (mounted_type == type && (type == "cgroup2" || has_word(options, "memory"))) {
            return Mount{unescape(mount.source), unescape(mount.target)};
        }
    }
    return std::nullopt;
}

/// Our path in the hierarchy of cgroups of this type.
std::optional<std::string> find_cgroup(const fs::path& root, const std::string& type) {
    std::ifstream lines(root / "proc/self/cgroup");
    for (std::string line; std::getline(lines, line);) {
        // "4:memory:/job/7", or "0::/job/7" for v2.
        const std::size_t first = line.find(':');
        const std::size_t second = line.find(':', first == line.npos ? line.npos : first + 1);
        if (second == line.npos) {
            continue;
        }
        const std::string controllers = line.substr(first + 1, second - first - 1);
        if (type == "cgroup2" ? controllers.empty() : has_word(controllers, "memory")) {
            return line.substr(second + 1);
        }
    }
    return std::nullopt;
}

/// "Memory cgroup out of memory: Killed process 123 (train)" of a record that says so, and the pid.
std::optional<std::pair<pid_t, std::string>> parse_record(std::string_view record) {
    // "3,1234,5678901,-;text", then lines that begin with a blank.
    record = record.substr(0, record.find('\n'));
    const std::size_t semicolon = record.find(';');
    if (semicolon == std::string_view::npos) {
        return std::nullopt;
    }
    record.remove_prefix(semicolon + 1);
    constexpr std::string_view kKilled = "Killed process ";
    const std::size_t at = record.find(kKilled);
    if (at == std::string_view::npos) {
        return std::nullopt;
    }
    const std::string_view rest = record.substr(at + kKilled.size());
    pid_t pid = 0;
    if (std::from_chars(rest.data(), rest.data() + rest.size(), pid).ec != std::errc()) {
        return std::nullopt;
    }
    // The name may hold parentheses of its own; nothing after it does.
    const std::size_t name_end = record.rfind(')');
    const bool named = name_end != record.npos && name_end > at;
    return std::pair(pid, std::string(record.substr(0, named ? name_end + 1 : record.npos)));
}

/// Whether our pids are those of the log, and not those of a container. The first name space of the
/// kernel has a number that never changes.
bool has_pids_of_machine(const fs::path& root) {
    std::error_code none;
    return fs::read_symlink(root / "proc/self/ns/pid", none) == "pid:[4026531836]";
}

}  // namespace

OomWatch::OomWatch(fs::path root) : root_(std::move(root)) {
    choose_counter();
    if (!has_pids_of_machine(root_)) {
        return;
    }
    log_ = UniqueFd(::open((root_ / "dev/kmsg").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    if (log_ && ::lseek(log_.get(), 0, SEEK_END) < 0) {
        log_.reset();
    }
}

std::optional<fs::path> OomWatch::cgroup_folder(const std::string& type) const {
    const auto mount = find_mount(root_, type);
    const auto cgroup = find_cgroup(root_, type);
    if (!mount || !cgroup) {
        return std::nullopt;
    }
    // In a container the mount may show a part of the hierarchy, with our own cgroup as its top.
    const fs::path target = root_ / fs::path(mount->target).relative_path();
    const fs::path inside = fs::path(*cgroup).lexically_relative(mount->source);
    const bool outside = inside.empty() || *inside.begin() == "..";
    return outside ? target : target / inside;
}

void OomWatch::choose_counter() {
    std::vector<Counter> candidates;
    if (const auto folder = cgroup_folder("cgroup")) {
        candidates.push_back({*folder / "memory.oom_control", "memory.oom_control", "this cgroup"});
    }
    if (const auto folder = cgroup_folder("cgroup2")) {
        candidates.push_back({*folder / "memory.events", "memory.events", "this cgroup"});
    }
    candidates.push_back({root_ / "proc/vmstat", "/proc/vmstat", "this machine"});
    for (const Counter& candidate : candidates) {
        if (const auto count = read_count(candidate.file, "oom_kill")) {
            counter_ = candidate;
            count_before_ = *count;
            return;
        }
    }
}

void OomWatch::read_log() {
    std::array<char, 8192> record;  // NOLINT(cppcoreguidelines-pro-type-member-init)
    for (int count = 0; log_ && count < kLogRecordsMax; ++count) {
        const ssize_t bytes = ::read(log_.get(), record.data(), record.size());
        if (bytes < 0 && (errno == EPIPE || errno == EINTR)) {
            continue;  // Records were overwritten before we had read them.
        }
        if (bytes <= 0) {
            return;
        }
        const std::string_view text(record.data(), static_cast<std::size_t>(bytes));
        if (auto victim = parse_record(text)) {
            victims_.push_back({victim->first, std::move(victim->second)});
            if (victims_.size() > kVictimsMax) {
                victims_.pop_front();
            }
        }
    }
}

std::string OomWatch::evidence(pid_t pid) {
    read_log();
    for (const Victim& victim : victims_) {
        if (victim.pid == pid) {
            return "the kernel log says: " + victim.record;
        }
    }
    if (counter_.file.empty()) {
        return "";
    }
    const auto now = read_count(counter_.file, "oom_kill");
    if (!now || *now <= count_before_) {
        return "";
    }
    const std::uint64_t killed = *now - count_before_;
    return "the kernel's out-of-memory killer ended " + std::to_string(killed) +
           (killed == 1 ? " process" : " processes") + " of " + counter_.whose + " (" +
           counter_.shown + " oom_kill " + std::to_string(count_before_) + " -> " +
           std::to_string(*now) + ")";
}

}  // namespace regroup::agent
