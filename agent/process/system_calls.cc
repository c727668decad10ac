// SPDX-License-Identifier: Apache-2.0
//
// Each call is made with arguments that have no effect.
#include "agent/process/system_calls.h"

#include <cerrno>
#include <sys/syscall.h>
#include <unistd.h>

namespace regroup::agent {
namespace {

constexpr unsigned kUnknownFlags = ~0U;

}  // namespace

std::vector<std::string> refused_calls() {
    std::vector<std::string> refused;
    // A kernel that does not know a call says ENOSYS. EPERM comes from a filter, and many programs
    // take it for another failure.
    const auto note = [&](const char* name, long result) {
        if (result < 0 && errno == EPERM) {
            refused.emplace_back(name);
        }
    };
    const long pidfd = ::syscall(SYS_pidfd_open, ::getpid(), 0);
    note("pidfd_open", pidfd);
    if (pidfd >= 0) {
        ::close(static_cast<int>(pidfd));
    }
    note("pidfd_send_signal", ::syscall(SYS_pidfd_send_signal, -1, 0, nullptr, 0));
    note("clone3", ::syscall(SYS_clone3, nullptr, 0));
    note("close_range", ::syscall(SYS_close_range, 1U, 0U, 0U));
    note("futex_waitv", ::syscall(SYS_futex_waitv, nullptr, 0U, 0U, nullptr, 0));
    note("memfd_create", ::syscall(SYS_memfd_create, nullptr, kUnknownFlags));
    note("getrandom", ::syscall(SYS_getrandom, nullptr, 0U, 0U));
    note("set_robust_list", ::syscall(SYS_set_robust_list, nullptr, 0U));
    return refused;
}

std::string missing_call() {
    const auto is_missing = [](long result) {
        return result < 0 && (errno == EPERM || errno == ENOSYS);
    };
    return is_missing(::syscall(SYS_accept4, -1, nullptr, nullptr, 0)) ? "accept4"
           : is_missing(::syscall(SYS_epoll_create1, kUnknownFlags))   ? "epoll_create1"
           : is_missing(::syscall(SYS_eventfd2, 0U, kUnknownFlags))    ? "eventfd2"
           : is_missing(::syscall(SYS_pipe2, nullptr, kUnknownFlags))  ? "pipe2"
                                                                       : "";
}

}  // namespace regroup::agent
