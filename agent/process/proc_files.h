// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "agent/process/exit_status.h"

namespace regroup::agent {

/// The content of a file in /proc; nothing if it cannot be read.
[[nodiscard]] std::optional<std::string> read_proc_file(const std::string& path);

/// The names in `folder` that are numbers: processes, threads.
[[nodiscard]] std::vector<pid_t> numbers_in(const std::string& folder);

/// The facts of /proc/PID/stat.
struct ProcessEntry {
    pid_t pid = 0;
    pid_t parent = 0;
    char state = '?';     ///< As in ps: R, S, D (stuck in the kernel), Z (ended, not reaped), ...
    std::string command;  ///< The short name, at most 15 characters.
};

/// Nothing if there is no such process.
[[nodiscard]] std::optional<ProcessEntry> read_process(pid_t pid);

/// The exit status of `pid` as soon as it is certain: while the kernel still frees its memory,
/// before the parent is notified. Nothing while it is not certain, for an exit with success (which
/// /proc does not show), and without the permission to read it. `pid` must be a child that was not
/// reaped; else another process may have the number.
[[nodiscard]] std::optional<ExitStatus> read_exit(pid_t pid);

/// True if every thread of `pid` is exiting or gone: neither the program nor one of its system
/// calls runs any more. Reads a file for each thread.
[[nodiscard]] bool runs_no_more(pid_t pid);

/// True if every thread of `pid` has ended, so that its files are closed; or if there is no such
/// process.
[[nodiscard]] bool has_ended(pid_t pid);

/// True if `pid` does not catch, ignore or block this signal, so that it has its default effect.
/// False if there is no such process.
[[nodiscard]] bool has_default(pid_t pid, int signal);

/// True if `pid` sleeps until one of its children ends, as a shell does. False where the kernel
/// does not tell.
[[nodiscard]] bool waits_for_child(pid_t pid);

/// True if `pid` has mapped a file whose path contains `part`.
[[nodiscard]] bool maps_file(pid_t pid, const std::string& part);

/// The children of `pid`, including ended ones that were not reaped. Nothing if this kernel does
/// not list children, or if there is no such process.
[[nodiscard]] std::optional<std::vector<pid_t>> read_children(pid_t pid);

/// All processes in /proc. Reads a file for each.
[[nodiscard]] std::vector<ProcessEntry> read_all_processes();

}  // namespace regroup::agent
