// SPDX-License-Identifier: Apache-2.0
#include "agent/process/process_tree.h"

#include <cerrno>
#include <csignal>
#include <map>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <utility>

#include "rendezvous/files/unique_fd.h"

namespace regroup::agent {
namespace {

/// True if `pid` is now a descendant of `ancestor`.
bool descends_from(pid_t pid, pid_t ancestor) {
    constexpr int kDepthMax = 1000;
    for (int depth = 0; depth < kDepthMax && pid > 1; ++depth) {
        const auto entry = read_process(pid);
        if (!entry) {
            return false;
        }
        if (entry->parent == ancestor) {
            return true;
        }
        pid = entry->parent;
    }
    return false;
}

/// The descendants of `ancestor`, level by level, without `spared` and their descendants.
template <class ChildrenOf>
std::vector<pid_t> walk(pid_t ancestor, const std::set<pid_t>& spared,
                        const ChildrenOf& children_of) {
    std::vector<pid_t> found = {ancestor};
    for (std::size_t index = 0; index < found.size(); ++index) {
        for (const pid_t child : children_of(found[index])) {
            if (!spared.contains(child)) {
                found.push_back(child);
            }
        }
    }
    found.erase(found.begin());
    return found;
}

/// True if a child of this process has ended and was not reaped. Nothing if this process has no
/// child, and so no descendant. One system call; reading the tree takes ten.
std::optional<bool> has_ended_child() {
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
        return std::nullopt;
    }
    return info.si_pid != 0;
}

/// With -1 it only waits.
bool is_readable(int fd, int timeout_ms) {
    pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
    return ::poll(&entry, 1, timeout_ms) > 0;
}

UniqueFd open_pidfd(pid_t pid) {
    return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

/// True if this child of ours has ended, or was reaped.
bool child_has_ended(pid_t pid) {
    siginfo_t info{};
    return ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
           info.si_pid != 0;
}

/// Of a process that waits for them. Its children are not ours: only a pidfd is sure not to mean
/// another process.
void signal_children(pid_t parent, int signal) {
    const auto children = read_children(parent);
    for (const pid_t pid : children ? *children : std::vector<pid_t>()) {
        const UniqueFd pidfd = open_pidfd(pid);
        const auto entry = read_process(pid);
        if (!pidfd || !entry || entry->parent != parent) {
            continue;
        }
        const bool only_waits = waits_for_child(pid) && !has_default(pid, signal);
        ::syscall(SYS_pidfd_send_signal, pidfd.get(), signal, nullptr, 0);
        if (only_waits) {
            signal_children(pid, signal);
        }
    }
}

/// One look at the tree below this process.
struct Look {
    /// Sent SIGKILL. The pidfd is readable after the end. Without pidfds: a child of ours.
    std::map<pid_t, UniqueFd> dying;
    bool quiet = true;  ///< Found only ended processes that are kept.
};

Look kill_those_in_sight(const std::set<pid_t>& kept, const std::set<pid_t>& spared,
                         const std::set<pid_t>& ending) {
    const pid_t self = ::getpid();
    Look look;
    for (const pid_t pid : descendants(self, spared)) {
        if (ending.contains(pid)) {
            continue;
        }
        UniqueFd pidfd = open_pidfd(pid);
        if (pidfd && kept.contains(pid) && is_readable(pidfd.get(), 0)) {
            continue;
        }
        look.quiet = false;
        // Check the ancestry after opening the pidfd. If the pid was reused since it was listed,
        // the answer is no, or the pidfd refers to the former process, which is gone.
        if (pidfd && !is_readable(pidfd.get(), 0) && descends_from(pid, self)) {
            ::syscall(SYS_pidfd_send_signal, pidfd.get(), SIGKILL, nullptr, 0);
            look.dying.emplace(pid, std::move(pidfd));
        }
    }
    return look;
}

/// Without pidfds. The children of those that it kills are ours at the next look.
Look kill_children(const std::set<pid_t>& kept, const std::set<pid_t>& spared,
                   const std::set<pid_t>& ending) {
    const pid_t self = ::getpid();
    Look look;
    for (const pid_t pid : descendants(self, spared)) {
        if (ending.contains(pid)) {
            continue;
        }
        const auto entry = read_process(pid);
        if (!entry || entry->parent != self) {
            look.quiet = look.quiet && !entry;
            continue;
        }
        const bool ended = child_has_ended(pid);
        if (ended && kept.contains(pid)) {
            continue;
        }
        look.quiet = false;
        if (!ended) {
            ::kill(pid, SIGKILL);
            look.dying.emplace(pid, UniqueFd());
        }
    }
    return look;
}

std::vector<ProcessEntry> still_there(const std::map<pid_t, UniqueFd>& dying) {
    std::vector<ProcessEntry> survivors;
    for (const auto& [pid, pidfd] : dying) {
        const auto entry = read_process(pid);
        if (entry && !(pidfd ? is_readable(pidfd.get(), 0) : child_has_ended(pid))) {
            survivors.push_back(*entry);
        }
    }
    return survivors;
}

}  // namespace

void become_subreaper() noexcept {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

std::vector<pid_t> descendants(pid_t ancestor, const std::set<pid_t>& spared) {
    if (!read_children(ancestor)) {
        return descendants_by_parent(ancestor, spared);
    }
    return walk(ancestor, spared,
                [](pid_t pid) { return read_children(pid).value_or(std::vector<pid_t>()); });
}

std::vector<pid_t> descendants_by_parent(pid_t ancestor, const std::set<pid_t>& spared) {
    std::map<pid_t, std::vector<pid_t>> children;
    for (const ProcessEntry& entry : read_all_processes()) {
        children[entry.parent].push_back(entry.pid);
    }
    return walk(ancestor, spared, [&](pid_t pid) { return children[pid]; });
}

std::vector<ProcessEntry> rest_of_group(pid_t leader, const std::set<pid_t>& spared) {
    std::vector<ProcessEntry> rest;
    for (const pid_t pid : descendants(::getpid(), spared)) {
        if (pid == leader || ::getpgid(pid) != leader) {
            continue;
        }
        const auto entry = read_process(pid);
        if (entry && entry->state != 'Z' && entry->state != 'X') {
            rest.push_back(*entry);
        }
    }
    return rest;
}

void signal_in_order(pid_t child, int signal) {
    // A look after the signal could find that the process has reacted to it.
    const bool only_waits = waits_for_child(child) && !has_default(child, signal);
    ::kill(child, signal);
    if (only_waits) {
        signal_children(child, signal);
    }
}

bool pidfds_are_allowed() {
    static const bool allowed = [] {
        const UniqueFd own = open_pidfd(::getpid());
        const long sent = own ? ::syscall(SYS_pidfd_send_signal, own.get(), 0, nullptr, 0) : -1;
        return sent == 0 || errno == EMFILE || errno == ENFILE || errno == ENOMEM;
    }();
    return allowed;
}

void reap_orphans(const std::set<pid_t>& kept) {
    if (!has_ended_child().value_or(false)) {
        return;
    }
    const pid_t self = ::getpid();
    const auto children = read_children(self);
    // Without the kernel's list of children this includes grandchildren, which has no effect.
    for (const pid_t pid : children ? *children : descendants_by_parent(self)) {
        if (!kept.contains(pid)) {
            ::waitid(P_PID, static_cast<id_t>(pid), nullptr, WEXITED | WNOHANG);
        }
    }
}

TreeKill kill_descendants(const Clock& clock, Instant deadline, const std::set<pid_t>& kept,
                          const std::set<pid_t>& spared, const std::set<pid_t>& ending) {
    constexpr int kPauseMs = 5;
    if (!has_ended_child()) {
        return {};
    }
    const bool by_pidfd = pidfds_are_allowed();
    std::set<pid_t> killed;
    int idle_looks = 0;  // In a row: they found something, and could do nothing about it.
    // Two quiet looks in a row are needed: a process that keeps forking and exiting may move within
    // the tree during one look.
    for (int quiet_looks = 0; quiet_looks < 2;) {
        const Look look = by_pidfd ? kill_those_in_sight(kept, spared, ending)
                                   : kill_children(kept, spared, ending);
        idle_looks = look.quiet || !look.dying.empty() ? 0 : idle_looks + 1;
        quiet_looks = look.quiet ? quiet_looks + 1 : 0;
        for (const auto& [pid, pidfd] : look.dying) {
            killed.insert(pid);
        }
        if (clock.now() >= deadline) {
            return {.killed = std::move(killed), .survivors = still_there(look.dying)};
        }
        if (!look.dying.empty()) {
            is_readable(look.dying.rbegin()->second.get(), kPauseMs);
        }
        if (!look.quiet) {
            reap_orphans(kept);
        }
        if (idle_looks > 1) {
            is_readable(-1, kPauseMs);
        }
    }
    return {.killed = std::move(killed), .survivors = {}};
}

std::string describe(const std::vector<ProcessEntry>& processes) {
    std::string text;
    for (const ProcessEntry& entry : processes) {
        text += (text.empty() ? "" : ", ") + ("pid " + std::to_string(entry.pid)) + " (" +
                entry.command + ", state " + entry.state + ")";
    }
    return text;
}

}  // namespace regroup::agent
