// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "agent/process/exit_status.h"

namespace regroup::agent {

/// One line of /proc's account of a process.
struct ProcessEntry {
    pid_t pid = 0;
    pid_t parent = 0;
    char state = '?';     ///< As in ps: R, S, D (stuck in the kernel), Z (ended, not reaped), ...
    std::string command;  ///< The short name, at most 15 characters.
};

/// Nothing when there is no such process any more.
[[nodiscard]] std::optional<ProcessEntry> read_process(pid_t pid);

/// How `pid` has ended or is about to, as soon as that is settled: while the kernel still takes its
/// memory apart, long before its parent is told. Nothing as long as it is not settled, for one that
/// ends with success (which this account does not show), and for a process that is not ours to look
/// at. Of a child that was not reaped; the number could belong to another one else.
[[nodiscard]] std::optional<ExitStatus> read_exit(pid_t pid);

/// Whether every thread of `pid` is on its way out, or gone: nothing of the program runs any more,
/// nor any system call that it has made. Reads a file for each thread.
[[nodiscard]] bool runs_no_more(pid_t pid);

/// Whether `pid` neither catches nor ignores this signal, nor has it blocked, so that it would have
/// its default effect. False for a process that is not there.
[[nodiscard]] bool has_default(pid_t pid, int signal);

/// The children of `pid`, ended ones that were not reaped included. Nothing when this kernel does
/// not list children, or there is no such process.
[[nodiscard]] std::optional<std::vector<pid_t>> read_children(pid_t pid);

/// Every process that /proc shows. Costs a file for each.
[[nodiscard]] std::vector<ProcessEntry> read_all_processes();

}  // namespace regroup::agent
