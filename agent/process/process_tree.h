// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <sys/types.h>
#include <vector>

#include "agent/process/proc_files.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/result.h"

namespace regroup::agent {

/// From now on, orphaned descendants become children of this process, not of init, so that they can
/// be found and ended. This process must reap them: see reap_orphans().
void become_subreaper() noexcept;

/// All descendants of `ancestor`, including ended ones that were not reaped, parents before their
/// children; without `spared` and their descendants. A snapshot: processes come and go meanwhile.
[[nodiscard]] std::vector<pid_t> descendants(pid_t ancestor, const std::set<pid_t>& spared = {});

/// The same by the parent of each process, for kernels that do not list children.
[[nodiscard]] std::vector<pid_t> descendants_by_parent(pid_t ancestor,
                                                       const std::set<pid_t>& spared = {});

/// The living members of the process group of `leader`, a child of this process, without itself.
/// Does not look below `spared`.
[[nodiscard]] std::vector<ProcessEntry> rest_of_group(pid_t leader, const std::set<pid_t>& spared);

/// Sends `signal` to `child`, a child of this process. A shell that catches it, and sleeps until
/// its own child ends, does nothing before that: then its children get the signal, too, and so on.
void signal_in_order(pid_t child, int signal);

/// False if pidfd_open or pidfd_send_signal is refused, as by the sandbox of an old container
/// runtime.
[[nodiscard]] bool pidfds_are_allowed();

/// Reaps the ended children of this process, except `kept`, whose owner needs their exit status.
void reap_orphans(const std::set<pid_t>& kept);

struct TreeKill {
    std::set<pid_t> killed;               ///< Processes that were sent SIGKILL.
    std::vector<ProcessEntry> survivors;  ///< State D: stuck in the kernel.
};

/// Kills all descendants of this process, repeatedly until none is left or `deadline` passes, and
/// reaps those that become our children, except `kept`. Other processes are never signalled, even
/// if one has the reused pid of a descendant. `spared` (children from before this process started
/// any) and their descendants are not signalled either. `ending` (children whose end is certain)
/// are not waited for; their descendants are killed. Blocks, mostly for some milliseconds. This
/// process must be a subreaper; else processes that left the tree by a double fork are not found.
/// Without pidfds a process is killed when its parent has ended, since only the pid of a child of
/// ours cannot be reused meanwhile.
TreeKill kill_descendants(const Clock& clock, Instant deadline, const std::set<pid_t>& kept,
                          const std::set<pid_t>& spared = {}, const std::set<pid_t>& ending = {});

/// "pid 4711 (python3, state D), pid 4712 (sh, state S)".
[[nodiscard]] std::string describe(const std::vector<ProcessEntry>& processes);

}  // namespace regroup::agent
