// SPDX-License-Identifier: Apache-2.0
#include "agent/process/process_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <map>

namespace regroup::agent {

namespace {

constexpr int kPauseMs = 2;

std::string read_small_file(const std::string& path) {
    std::string text;
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return text;
    }
    std::array<char, 4096> buffer{};
    ssize_t count = 0;
    while ((count = ::read(fd, buffer.data(), buffer.size())) > 0) {
        text.append(buffer.data(), static_cast<std::size_t>(count));
    }
    ::close(fd);
    return text;
}

/// Calls `visit` with each entry of `path` that is a number.
template <class Visit>
bool for_each_number(const std::string& path, Visit visit) {
    DIR* directory = ::opendir(path.c_str());
    if (directory == nullptr) {
        return false;
    }
    while (const dirent* entry = ::readdir(directory)) {
        const int number = std::atoi(entry->d_name);
        if (number > 0) {
            visit(static_cast<pid_t>(number));
        }
    }
    ::closedir(directory);
    return true;
}

/// "R (sleeping)..." after the command's closing bracket: the state and the parent's pid.
struct Stat {
    std::string command;
    char state = '?';
    pid_t parent = 0;
};

Stat read_stat(pid_t pid) {
    Stat stat;
    const std::string text = read_small_file("/proc/" + std::to_string(pid) + "/stat");
    const std::size_t open = text.find('(');
    const std::size_t close = text.rfind(')');  // The command itself may contain brackets.
    if (open == std::string::npos || close == std::string::npos || close + 4 > text.size()) {
        return stat;
    }
    stat.command = text.substr(open + 1, close - open - 1);
    stat.state = text[close + 2];
    stat.parent = std::atoi(text.c_str() + close + 4);
    return stat;
}

std::vector<pid_t> children_of(pid_t pid) {
    std::vector<pid_t> result;
    const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
    for_each_number(tasks, [&](pid_t task) {
        const std::string list = read_small_file(tasks + "/" + std::to_string(task) + "/children");
        const char* at = list.c_str();
        char* end = nullptr;
        for (long child = std::strtol(at, &end, 10); end != at; child = std::strtol(at, &end, 10)) {
            result.push_back(static_cast<pid_t>(child));
            at = end;
        }
    });
    return result;
}

// For kernels without the children file: one pass over all processes.
std::vector<pid_t> descendants_by_parent() {
    std::multimap<pid_t, pid_t> children;
    for_each_number("/proc", [&](pid_t pid) { children.emplace(read_stat(pid).parent, pid); });
    std::vector<pid_t> result{::getpid()};
    for (std::size_t i = 0; i < result.size(); ++i) {
        const auto [first, last] = children.equal_range(result[i]);
        std::for_each(first, last, [&](const auto& entry) { result.push_back(entry.second); });
    }
    result.erase(result.begin());
    return result;
}

bool has_children_files() {
    static const bool has = ::access("/proc/self/task", R_OK) == 0 &&
                            ::access(("/proc/self/task/" + std::to_string(::getpid()) +
                                      "/children").c_str(), R_OK) == 0;
    return has;
}

}  // namespace

void become_subreaper() { ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); }

std::vector<pid_t> descendants() {
    if (!has_children_files()) {
        return descendants_by_parent();
    }
    std::vector<pid_t> result = children_of(::getpid());
    for (std::size_t i = 0; i < result.size(); ++i) {
        const std::vector<pid_t> more = children_of(result[i]);
        result.insert(result.end(), more.begin(), more.end());
    }
    return result;
}

std::vector<std::string> kill_descendants(const std::set<pid_t>& keep, bool spare_kept,
                                          Duration limit) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    while (true) {
        std::vector<std::string> left;
        for (const pid_t pid : descendants()) {
            const bool kept = keep.contains(pid);
            if (kept && spare_kept) {
                continue;
            }
            ::kill(pid, SIGKILL);
            // Only a child can be reaped; the others become children as their parents die.
            if (!kept && ::waitpid(pid, nullptr, WNOHANG) == pid) {
                continue;
            }
            const Stat stat = read_stat(pid);
            if (stat.state == 'Z' && (kept || stat.parent != ::getpid())) {
                continue;  // Dead; its own parent reaps it, or we once that one is gone.
            }
            if (stat.state != '?') {
                left.push_back("pid " + std::to_string(pid) + " (" + stat.command + "), state " +
                               stat.state);
            }
        }
        if (left.empty() || std::chrono::steady_clock::now() >= deadline) {
            return left;
        }
        ::poll(nullptr, 0, kPauseMs);
    }
}

}  // namespace regroup::agent
