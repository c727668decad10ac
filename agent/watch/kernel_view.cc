// SPDX-License-Identifier: Apache-2.0
#include "agent/watch/kernel_view.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <sstream>
#include <string_view>
#include <sys/syscall.h>
#include <vector>

#include "agent/process/proc_files.h"
#include "rendezvous/base/text.h"

namespace regroup::agent {

namespace {

constexpr std::size_t kThreadsMax = 256;

std::string read(const std::string& path) {
    constexpr std::string_view kEnds("\n\0", 2);
    std::string text = read_proc_file(path).value_or("");
    text.erase(text.find_last_not_of(kEnds) + 1);
    return text;
}

std::optional<std::uint64_t> hexadecimal(std::string_view text) {
    text.remove_prefix(text.starts_with("0x") ? 2 : 0);
    return parse_number<std::uint64_t>(text, 16);
}

/// A mapped file: addresses [begin, end) are its bytes from `offset` on.
struct Mapping {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::uint64_t offset = 0;
    std::string path;
};

std::vector<Mapping> mappings_of(pid_t pid) {
    std::vector<Mapping> result;
    std::istringstream lines(read("/proc/" + std::to_string(pid) + "/maps"));
    std::string line;
    while (std::getline(lines, line)) {
        std::istringstream fields(line);
        std::string range;
        std::string rights;
        std::string offset;
        std::string device;
        std::string inode;
        std::string path;
        fields >> range >> rights >> offset >> device >> inode >> path;
        const std::size_t dash = range.find('-');
        if (dash == range.npos || path.empty()) {
            continue;
        }
        const auto begin = hexadecimal(range.substr(0, dash));
        const auto end = hexadecimal(range.substr(dash + 1));
        const auto from = hexadecimal(offset);
        if (begin && end && from) {
            result.push_back({*begin, *end, *from, path});
        }
    }
    return result;
}

std::string place_of(const std::string& address, const std::vector<Mapping>& mappings) {
    const std::optional<std::uint64_t> pc = hexadecimal(address);
    for (const Mapping& mapping : mappings) {
        if (pc && mapping.begin <= *pc && *pc < mapping.end) {
            std::ostringstream text;
            text << mapping.path << "+0x" << std::hex << *pc - mapping.begin + mapping.offset;
            return text.str();
        }
    }
    return address;
}

// `syscall` is "running", or the number of the call, its arguments, stack pointer and program
// counter.
std::string user_side(const std::string& syscall, const std::vector<Mapping>& mappings) {
    std::istringstream stream(syscall);
    std::vector<std::string> fields;
    for (std::string field; stream >> field;) {
        fields.push_back(field);
    }
    if (fields.size() < 3 || fields.back() == "0x0") {
        return "";
    }
    return (fields.front() == "-1" ? ", in no system call" : ", in system call " + fields.front()) +
           ", at " + place_of(fields.back(), mappings);
}

// The calls in which a program waits for something that it names.
std::string asleep_in(const std::string& syscall) {
    static const std::map<long, std::string_view> kCalls{
        {SYS_futex, "futex: it waits for a thread or a lock"},
        {SYS_read, "read"},
        {SYS_write, "write"},
        {SYS_recvfrom, "recvfrom: it waits for a socket"},
        {SYS_recvmsg, "recvmsg: it waits for a socket"},
        {SYS_ppoll, "poll"},
        {SYS_epoll_pwait, "epoll_wait"},
        {SYS_pselect6, "select"},
        {SYS_clock_nanosleep, "nanosleep"},
        {SYS_nanosleep, "nanosleep"},
        {SYS_wait4, "wait: it waits for a child"},
        {SYS_waitid, "wait: it waits for a child"},
        {SYS_restart_syscall, "a call with a time limit, which was interrupted"},
        {SYS_fsync, "fsync: it waits for a disk"},
        {SYS_fdatasync, "fdatasync: it waits for a disk"},
        {SYS_flock, "flock: it waits for the lock of a file"},
#if defined(SYS_poll)
        {SYS_poll, "poll"},
        {SYS_epoll_wait, "epoll_wait"},
        {SYS_select, "select"},
#endif
    };
    const std::string number = syscall.substr(0, syscall.find(' '));
    const auto found = kCalls.find(parse_number<long>(number).value_or(-1));
    return found != kCalls.end() ? "asleep in " + std::string(found->second)
           : number.empty()      ? "asleep"
                                 : "asleep in system call " + number;
}

std::string line_of(const std::string& status, const std::string& name) {
    const std::size_t at = status.find("\n" + name + ":");
    if (at == status.npos) {
        return "";
    }
    const std::size_t begin = status.find_first_not_of(" \x09", at + name.size() + 2);
    return begin == status.npos ? "" : status.substr(begin, status.find('\n', begin) - begin);
}

std::string describe_thread(pid_t id, const std::string& folder,
                            const std::vector<Mapping>& mappings) {
    const std::string wchan = read(folder + "/wchan");
    std::string text = "thread " + std::to_string(id) + " (" + read(folder + "/comm") +
                       "), state " + line_of(read(folder + "/status"), "State");
    if (!wchan.empty() && wchan != "0") {
        text += ", sleeps in " + wchan;
    }
    text += user_side(read(folder + "/syscall"), mappings) + "\n";
    std::istringstream frames(read(folder + "/stack"));
    for (std::string frame; std::getline(frames, frame);) {
        text += "    kernel: " + frame.substr(frame.starts_with("[<0>] ") ? 6 : 0) + "\n";
    }
    return text;
}

}  // namespace

std::string kernel_view(pid_t pid) {
    const std::string folder = "/proc/" + std::to_string(pid) + "/task/";
    std::vector<pid_t> threads = numbers_in(folder);
    std::sort(threads.begin(), threads.end());
    const std::vector<Mapping> mappings = mappings_of(pid);
    std::string text;
    for (std::size_t i = 0; i < std::min(threads.size(), kThreadsMax); ++i) {
        text += describe_thread(threads[i], folder + std::to_string(threads[i]), mappings);
    }
    if (threads.size() > kThreadsMax) {
        text += "and " + std::to_string(threads.size() - kThreadsMax) + " more threads\n";
    }
    return text;
}

std::string activity_of(pid_t pid) {
    const std::optional<ProcessEntry> process = read_process(pid);
    const std::string folder = "/proc/" + std::to_string(pid);
    switch (process ? process->state : '?') {
        case 'T':
            return "stopped by a signal";
        case 't':
            return "held by a debugger";
        case 'D': {
            const std::string place = read(folder + "/wchan");
            return "stuck in the kernel" +
                   (place.empty() || place == "0" ? "" : " (in " + place + ")");
        }
        case 'R':
            return "running";
        case 'S':
            return asleep_in(read(folder + "/syscall"));
        case 'Z':
            return "ended";
        default:
            return "";
    }
}

bool is_stopped(pid_t pid) {
    const std::optional<ProcessEntry> process = read_process(pid);
    return process && (process->state == 'T' || process->state == 't');
}

}  // namespace regroup::agent
