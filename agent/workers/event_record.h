// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <sys/types.h>

#include "agent/core/agent_core.h"

namespace regroup::agent {

/// Something that happened to a worker of this node.
struct WorkerEvent {
    enum class State : std::uint8_t {
        started,
        succeeded,
        failed,
        terminated,  ///< Ended on request.
        stacks_saved,
    };

    State state = State::started;
    Assignment assignment;
    std::uint32_t local_rank = 0;
    pid_t pid = 0;
    int exit_code = 0;     ///< Minus the signal's number when a signal ended it.
    std::string folder{};  ///< For stacks_saved: the folder that has them.
};

using EventSink = std::function<void(const WorkerEvent& event)>;

}  // namespace regroup::agent
