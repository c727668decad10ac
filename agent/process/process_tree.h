// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <sys/types.h>
#include <vector>

#include "agent/process/proc_files.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/result.h"

namespace regroup::agent {

/// From now on an orphan among our descendants becomes our child, not that of the machine's first
/// process, so that we can find and end it. Whoever adopts must also reap: see reap_orphans().
void become_subreaper() noexcept;

/// All processes below `ancestor`, ended ones that were not reaped included, parents before their
/// children; without `spared` and those below them. A snapshot: processes come and go meanwhile.
[[nodiscard]] std::vector<pid_t> descendants(pid_t ancestor, const std::set<pid_t>& spared = {});

/// The same from the parents that each process names, for kernels that do not list children.
[[nodiscard]] std::vector<pid_t> descendants_by_parent(pid_t ancestor,
                                                       const std::set<pid_t>& spared = {});

/// Reaps the children of this process that have ended, except `kept`: those have an owner that
/// wants to know how they ended.
void reap_orphans(const std::set<pid_t>& kept);

struct TreeKill {
    std::size_t killed = 0;               ///< How many processes were sent SIGKILL.
    std::vector<ProcessEntry> survivors;  ///< Who is there still; in state D, stuck in the kernel.
};

/// Ends all descendants of this process with SIGKILL, again and again until none is left or
/// `deadline` passes, and reaps those that become our children, except `kept`. A process that is
/// not our descendant is never signalled, even if it has got the pid of one that was; nor are
/// `spared`, and what is below them: children that this process had before it started any. Blocks
/// for as long as that takes: some milliseconds, as a rule. This process must be a subreaper, or
/// what has left the tree by a double fork is not found.
TreeKill kill_descendants(const Clock& clock, Instant deadline, const std::set<pid_t>& kept,
                          const std::set<pid_t>& spared = {});

/// "pid 4711 (python3, state D), pid 4712 (sh, state S)".
[[nodiscard]] std::string describe(const std::vector<ProcessEntry>& processes);

}  // namespace regroup::agent
