// SPDX-License-Identifier: Apache-2.0
#include "agent/process/exit_status.h"

#include <sys/resource.h>
#include <unistd.h>

#include "rendezvous/base/signal_name.h"

namespace regroup::agent {

ExitStatus ExitStatus::exited(int code) noexcept {
    return {.exit_code = code, .signal = 0, .core_dumped = false};
}

ExitStatus ExitStatus::signalled(int number, bool core_dumped) noexcept {
    return {.exit_code = -1, .signal = number, .core_dumped = core_dumped};
}

ExitStatus ExitStatus::from_siginfo(const siginfo_t& info) noexcept {
    if (info.si_code == CLD_EXITED) {
        return exited(info.si_status);
    }
    return signalled(info.si_status, info.si_code == CLD_DUMPED);
}

std::string ExitStatus::describe() const {
    if (signal == 0) {
        return "exited with code " + std::to_string(exit_code);
    }
    return "was ended by " + signal_name(signal) + (core_dumped ? " (core dumped)" : "");
}

void end_like(const ExitStatus& status) noexcept {
    if (status.signal == 0) {
        ::_exit(status.exit_code);
    }
    const rlimit no_core{.rlim_cur = 0, .rlim_max = 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    ::signal(status.signal, SIG_DFL);
    sigset_t just_this;
    sigemptyset(&just_this);
    sigaddset(&just_this, status.signal);
    ::sigprocmask(SIG_UNBLOCK, &just_this, nullptr);
    ::kill(::getpid(), status.signal);
    // Reached only by the first process of a PID namespace, which default actions do not end.
    ::_exit(128 + status.signal);
}

}  // namespace regroup::agent
