// SPDX-License-Identifier: Apache-2.0
#include "agent/process/warden.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "agent/process/process_tree.h"

namespace regroup::agent {

namespace {

constexpr std::array kForwarded{SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
constexpr Duration kKillLimit = std::chrono::milliseconds(1500);

bool is_ignored(int signal) {
    struct sigaction action {};
    return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

[[noreturn]] void end_by(int signal) {
    // The agent has left the core file, if there is one.
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    ::signal(signal, SIG_DFL);
    sigset_t one;
    ::sigemptyset(&one);
    ::sigaddset(&one, signal);
    ::raise(signal);
    ::sigprocmask(SIG_UNBLOCK, &one, nullptr);
    ::_exit(128 + signal);
}

[[noreturn]] void end_as_the_agent(pid_t agent, const siginfo_t& info) {
    const bool by_signal = info.si_code != CLD_EXITED;
    const std::vector<std::string> left = kill_descendants({}, false, kKillLimit);
    for (const std::string& process : left) {
        std::fprintf(stderr, "regroup: cannot end %s\n", process.c_str());
    }
    if (!by_signal) {
        ::_exit(info.si_status);
    }
    // Signals that ask to end are answered by the agent in order; these were not.
    if (info.si_status != SIGTERM && info.si_status != SIGINT && info.si_status != SIGHUP &&
        info.si_status != SIGQUIT) {
        std::fprintf(stderr, "regroup: the agent (pid %d) was ended by SIG%s; its workers were "
                             "killed\n",
                     agent, ::sigabbrev_np(info.si_status));
    }
    end_by(info.si_status);
}

[[noreturn]] void guard(pid_t agent, const sigset_t& watched) {
    while (true) {
        siginfo_t signal{};
        if (::sigwaitinfo(&watched, &signal) < 0) {
            continue;
        }
        if (signal.si_signo == SIGCHLD) {
            siginfo_t child{};
            while (::waitid(P_ALL, 0, &child, WEXITED | WNOHANG) == 0 && child.si_pid != 0) {
                if (child.si_pid == agent) {
                    end_as_the_agent(agent, child);
                }
                child = {};
            }
        } else if (signal.si_code != SI_KERNEL) {
            ::kill(agent, signal.si_signo);  // The terminal's own went to the agent as well.
        }
    }
}

}  // namespace

AgentSide split_off_warden() {
    std::array<int, 2> pipe{-1, -1};
    sigset_t watched;
    sigset_t before;
    ::sigemptyset(&watched);
    ::sigaddset(&watched, SIGCHLD);
    for (const int signal : kForwarded) {
        if (!is_ignored(signal)) {
            ::sigaddset(&watched, signal);
        }
    }
    // A SIGCHLD that is ignored by inheritance would hide the agent's end.
    ::signal(SIGCHLD, SIG_DFL);
    std::fflush(nullptr);
    ::sigprocmask(SIG_BLOCK, &watched, &before);
    const pid_t agent = ::pipe2(pipe.data(), O_CLOEXEC) == 0 ? ::fork() : -1;
    if (agent < 0) {
        std::fprintf(stderr, "regroup: cannot fork (%s); kill -9 may leave processes behind\n",
                     std::strerror(errno));
        ::sigprocmask(SIG_SETMASK, &before, nullptr);
        become_subreaper();
        return {};
    }
    become_subreaper();
    if (agent == 0) {
        ::close(pipe[1]);
        ::sigprocmask(SIG_SETMASK, &before, nullptr);
        return {pipe[0]};
    }
    ::close(pipe[0]);
    ::prctl(PR_SET_NAME, "regroup-warden");
    guard(agent, watched);
}

void end_without_warden() {
    std::fprintf(stderr, "regroup: the launcher was killed; killing its workers\n");
    kill_descendants({}, false, kKillLimit);
    ::_exit(128 + SIGKILL);
}

}  // namespace regroup::agent
