// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <sys/types.h>

namespace regroup::agent {

/// What the kernel tells of each thread of a process, without stopping it and without a debugger:
/// name, state, what it sleeps in, the system call, where in which library its program counter is
/// (for addr2line), and its stack in the kernel. What we may not read is left out; "" when there is
/// no such process. At most 256 threads. Never blocks for long: /proc is memory.
[[nodiscard]] std::string kernel_view(pid_t pid);

/// True while the process is stopped by a signal (SIGSTOP), or by a debugger.
[[nodiscard]] bool is_stopped(pid_t pid);

}  // namespace regroup::agent
