// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/link/sigterm.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <type_traits>
#include <unistd.h>
#include <utility>

namespace regroup::link {
namespace {

/// How long the agent may take after a SIGTERM to the whole node to agree with the daemon that the
/// node leaves.
constexpr Duration kAskLimit = std::chrono::seconds(2);

// Read by the handler; written before it is installed.
std::atomic<bool> in_use = false;
std::atomic<bool> is_ignored = false;
std::atomic<pid_t> handler_process = 0;
std::atomic<pid_t> agent_of_owner = 0;
std::atomic<int> bell_of_owner = -1;
static_assert(std::is_same_v<pid_t, int> && std::atomic<int>::is_always_lock_free);

void end_by_sigterm() noexcept {
    struct sigaction plain{};
    plain.sa_handler = SIG_DFL;
    ::sigaction(SIGTERM, &plain, nullptr);
    ::kill(::getpid(), SIGTERM);
}

// A forked child inherits the handler, but must end by the signal.
void on_sigterm(int /*number*/, siginfo_t* info, void* /*context*/) {
    const int error = errno;
    const bool is_of_agent = info->si_code <= 0 && info->si_pid == agent_of_owner;
    const std::uint64_t one = 1;
    const bool is_put_off = ::getpid() == handler_process && !is_of_agent;
    if (!is_put_off || (!is_ignored && ::write(bell_of_owner, &one, sizeof one) != sizeof one)) {
        end_by_sigterm();
    }
    errno = error;
}

bool is_ours(const struct sigaction& action) noexcept {
    return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == on_sigterm;
}

bool is_default(const struct sigaction& action) noexcept {
    return (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == SIG_DFL;
}

}  // namespace

void deliver_sigterm() noexcept {
    struct sigaction present{};
    if (::sigaction(SIGTERM, nullptr, &present) == 0 && is_ours(present)) {
        end_by_sigterm();
    } else {
        ::kill(::getpid(), SIGTERM);
    }
}

SigtermPutOff::SigtermPutOff(pid_t agent, int bell) noexcept {
    struct sigaction before{};
    if (agent == 0 || agent == ::getpid() || in_use.exchange(true)) {
        return;
    }
    if (::sigaction(SIGTERM, nullptr, &before) != 0 || !is_default(before)) {
        in_use = false;
        return;
    }
    handler_process = ::getpid();
    agent_of_owner = agent;
    bell_of_owner = bell;
    struct sigaction action{};
    action.sa_sigaction = on_sigterm;
    action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    active_ = true;
    ::sigaction(SIGTERM, &action, nullptr);
}

SigtermPutOff::~SigtermPutOff() {
    if (!active_) {
        return;
    }
    struct sigaction present{};
    if (::sigaction(SIGTERM, nullptr, &present) == 0 && is_ours(present)) {
        present = {};
        present.sa_handler = SIG_DFL;
        ::sigaction(SIGTERM, &present, nullptr);
    }
    in_use = false;
}

void SigtermPutOff::ignore_from_now_on() noexcept {
    if (std::exchange(active_, false)) {
        is_ignored = true;
    }
}

void SigtermBell::decide(bool agent_is_there, bool has_asked) noexcept {
    if (bell_.drain() && !until_) {
        until_ = after(now(), kAskLimit);
    }
    if (until_ && has_asked) {
        until_.reset();
    } else if (until_ && (!agent_is_there || now() >= *until_)) {
        until_.reset();
        deliver_sigterm();
    }
}

}  // namespace regroup::link
