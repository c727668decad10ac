// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "rendezvous/core/messages.h"

namespace regroup::rendezvous {

/// True if nothing of any round runs on the node; workers may be parked there.
[[nodiscard]] inline bool has_no_workers(const NodeReport& report) noexcept {
    return report.state == NodeState::stopped || report.state == NodeState::finished;
}

}  // namespace regroup::rendezvous
