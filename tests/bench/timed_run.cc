// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/timed_run.h"

#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "agent/process/resolve_program.h"

extern char** environ;

namespace regroup::bench {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

double milliseconds_since(SteadyTime begin) {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
        .count();
}

double cpu_ms(const rusage& usage) {
    const auto of = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_usec) / 1e3;
    };
    return of(usage.ru_utime) + of(usage.ru_stime);
}

double own_cpu_ms() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return cpu_ms(usage);
}

/// Waits for one child. False unless it succeeded.
bool reap(pid_t pid, double& cpu_sum_ms) {
    rusage usage{};
    int status = 0;
    if (pid <= 0 || ::wait4(pid, &status, 0, &usage) != pid) {
        return false;
    }
    cpu_sum_ms += cpu_ms(usage);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

TimedRun run_timed(const std::vector<std::string>& command, const std::string& directory) {
    std::vector<char*> arguments;
    for (const std::string& argument : command) {
        arguments.push_back(const_cast<char*>(argument.c_str()));
    }
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDWR, 0);
    ::posix_spawn_file_actions_adddup2(&actions, 0, 1);
    ::posix_spawn_file_actions_adddup2(&actions, 0, 2);
    ::posix_spawn_file_actions_addchdir_np(&actions, directory.c_str());
    TimedRun run;
    pid_t pid = -1;
    const SteadyTime begin = std::chrono::steady_clock::now();
    ::posix_spawn(&pid, arguments[0], &actions, nullptr, arguments.data(), environ);
    run.success = reap(pid, run.cpu_ms);
    run.wall_ms = milliseconds_since(begin);
    ::posix_spawn_file_actions_destroy(&actions);
    return run;
}

TimedRun run_bare_loop(const std::string& path, int count) {
    char* arguments[] = {const_cast<char*>(path.c_str()), nullptr};
    std::vector<pid_t> pids(static_cast<std::size_t>(count), -1);
    TimedRun run;
    run.success = true;
    const double own_before = own_cpu_ms();
    const SteadyTime begin = std::chrono::steady_clock::now();
    for (pid_t& pid : pids) {
        ::posix_spawn(&pid, path.c_str(), nullptr, nullptr, arguments, environ);
    }
    for (const pid_t pid : pids) {
        run.success = reap(pid, run.cpu_ms) && run.success;
    }
    run.wall_ms = milliseconds_since(begin);
    run.cpu_ms += own_cpu_ms() - own_before;
    return run;
}

std::optional<std::string> find_program(const std::string& name) {
    const char* path = std::getenv("PATH");
    const Result<std::string> found =
        agent::resolve_program(name, path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin");
    return found ? std::optional(*found) : std::nullopt;
}

}  // namespace regroup::bench
