// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/resource.h>
#include <sys/types.h>
#include <unistd.h>

namespace regroup::agent {

/// This thread gets the CPU time that nobody else wants. For Linux, PRIO_PROCESS names a thread.
inline void lower_priority() noexcept {
    constexpr int kLowest = 19;
    ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kLowest);
}

}  // namespace regroup::agent
