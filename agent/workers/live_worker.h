// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <sys/types.h>

#include "agent/link/shared_memory.h"
#include "rendezvous/core/messages.h"

namespace regroup::agent {

/// One live worker and its page.
struct LiveWorker {
    std::uint32_t local_rank = 0;
    std::uint32_t rank = 0;
    pid_t pid = 0;
    rendezvous::RoundId round =
        rendezvous::RoundId::none;                     ///< The last round that it was assigned to.
    bool attached = false;                             ///< It has the SDK and writes its page.
    std::shared_ptr<SharedPage> page{};                ///< May be null.
    std::shared_ptr<SharedCollectives> collectives{};  ///< May be null.
};

}  // namespace regroup::agent
