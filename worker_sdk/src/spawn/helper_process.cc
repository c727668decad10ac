// SPDX-License-Identifier: Apache-2.0
#include <regroup/error.h>
#include <regroup/helper_process.h>

#include <atomic>
#include <csignal>
#include <string>
#include <unistd.h>

namespace regroup {

namespace {

std::atomic<pid_t> parent_of_helper{0};

}  // namespace

void obey_only_parent(int signal) {
    parent_of_helper = ::getppid();
    struct sigaction action{};
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    sigemptyset(&action.sa_mask);
    action.sa_sigaction = [](int /*number*/, siginfo_t* info, void* /*context*/) {
        const pid_t parent = parent_of_helper.load(std::memory_order_relaxed);
        const bool by_parent = info->si_code <= 0 && info->si_pid == parent;
        if (by_parent || ::getppid() != parent) {
            ::_exit(0);
        }
    };
    if (::sigaction(signal, &action, nullptr) != 0) {
        throw Error(Errc::invalid_argument,
                    "obey_only_parent: signal " + std::to_string(signal) + " cannot be handled");
    }
}

}  // namespace regroup
