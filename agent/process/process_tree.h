// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

#include "rendezvous/base/clock.h"

namespace regroup::agent {

/// Makes orphaned descendants of this process its children, however they were started (setsid,
/// double fork), so that they can be found and ended.
void become_subreaper();

/// All descendants of this process, nearest first.
[[nodiscard]] std::vector<pid_t> descendants();

/// Sends SIGKILL to every descendant of this process, again and again while new ones appear, and
/// reaps those that are or become its children, except `keep`: whose exit somebody else waits for.
/// They are killed too, unless `spare_kept`. Requires become_subreaper(). A process that is not a
/// descendant is never touched.
///
/// Blocks until none is left, for at most `limit`; returns those that are left then, as
/// "pid 4711 (python3), state D": a process stuck in the kernel cannot be killed.
std::vector<std::string> kill_descendants(const std::set<pid_t>& keep, bool spare_kept,
                                          Duration limit);

}  // namespace regroup::agent
