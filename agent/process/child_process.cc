// SPDX-License-Identifier: Apache-2.0
// boost::process::v2::basic_process does not fit. Its wait calls a blocking waitpid after a
// readiness that can be stale, which freezes the event loop. Its status does not distinguish
// exit(9) from SIGKILL, and it does not give its pidfd away.
//
// The pidfd only tells the event loop of the end. Signals and waits name the pid: it stays that of
// the child until this object reaps it, and old container runtimes refuse calls on a pidfd.
#include "agent/process/child_process.h"

#include <cerrno>
#include <sys/wait.h>

#include "agent/process/readable_watch.h"

namespace regroup::agent {

struct ChildProcess::State {
    State(pid_t pid_in, std::shared_ptr<std::set<pid_t>> registry_in)
        : pid(pid_in), registry(std::move(registry_in)) {
        registry->insert(pid);
    }
    ~State();

    State(const State&) = delete;
    State& operator=(const State&) = delete;

    std::optional<ExitStatus> look();
    void handle_readable();

    pid_t pid;
    std::shared_ptr<std::set<pid_t>> registry;
    std::optional<ReadableWatch> pidfd;
    std::optional<ExitStatus> status;
    std::function<void(ExitStatus)> on_exit;
};

ChildProcess::State::~State() {
    if (pidfd) {
        if (!look()) {
            ::kill(-pid, SIGKILL);
        }
        siginfo_t info{};
        ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG);
    }
    registry->erase(pid);
}

std::optional<ExitStatus> ChildProcess::State::look() {
    if (!status) {
        siginfo_t info{};
        const int result =
            ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT);
        ENSURE(result == 0);  // Only this object may reap the child.
        if (info.si_pid != 0) {
            status = ExitStatus::from_siginfo(info);
        }
    }
    return status;
}

void ChildProcess::State::handle_readable() {
    if (!look()) {
        pidfd->arm();
        return;
    }
    const ExitStatus ended = *status;
    const auto call = std::exchange(on_exit, nullptr);
    call(ended);  // May destroy *this.
}

ChildProcess::ChildProcess(std::unique_ptr<State> state) : state_(std::move(state)) {}
ChildProcess::ChildProcess(ChildProcess&&) noexcept = default;
ChildProcess& ChildProcess::operator=(ChildProcess&&) noexcept = default;
ChildProcess::~ChildProcess() = default;

Result<ChildProcess> ChildProcess::adopt(boost::asio::io_context& io, pid_t pid, UniqueFd pidfd,
                                         std::shared_ptr<std::set<pid_t>> registry) {
    auto state = std::make_unique<State>(pid, std::move(registry));
    auto watch = ReadableWatch::open(io, std::move(pidfd),
                                     [held = state.get()] { held->handle_readable(); });
    if (!watch) {
        ::kill(-pid, SIGKILL);
        while (::waitid(P_PID, static_cast<id_t>(pid), nullptr, WEXITED) < 0 && errno == EINTR) {
        }
        return watch.error();
    }
    state->pidfd.emplace(*std::move(watch));
    return ChildProcess(std::move(state));
}

pid_t ChildProcess::pid() const noexcept {
    return state_->pid;
}

void ChildProcess::async_wait(std::function<void(ExitStatus)> on_exit) {
    ENSURE(!state_->on_exit);
    state_->on_exit = std::move(on_exit);
    state_->pidfd->arm();
}

std::optional<ExitStatus> ChildProcess::status() {
    return state_->look();
}

void ChildProcess::signal(int number) noexcept {
    ::kill(state_->pid, number);
}

void ChildProcess::signal_group(int number) noexcept {
    ::kill(-state_->pid, number);
}

}  // namespace regroup::agent
