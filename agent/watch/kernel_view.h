// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <sys/types.h>

namespace regroup::agent {

/// The facts of /proc about each thread of a process: name, state, kernel function, system call,
/// library and offset of the program counter (for addr2line), and kernel stack. The process is not
/// stopped, and no debugger is needed. Facts that may not be read are left out; "" if there is no
/// such process. At most 256 threads. Does not block.
[[nodiscard]] std::string kernel_view(pid_t pid);

/// The activity of the first thread of a process, for people: "stopped by a signal", "held by a
/// debugger", "stuck in the kernel (in nfs_wait)", "running", "asleep in futex". Empty if it cannot
/// be read.
[[nodiscard]] std::string activity_of(pid_t pid);

/// True while the process is stopped by a signal (SIGSTOP), or by a debugger.
[[nodiscard]] bool is_stopped(pid_t pid);

}  // namespace regroup::agent
