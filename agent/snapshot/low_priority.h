// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/resource.h>
#include <sys/types.h>
#include <unistd.h>

namespace regroup::agent {

/// This thread gets a third of the CPU time of a worker that competes with it. No less: workers may
/// come to wait for it.
inline void lower_priority() noexcept {
    constexpr int kNiceness = 5;
    // For Linux, PRIO_PROCESS names a thread.
    ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNiceness);
}

}  // namespace regroup::agent
