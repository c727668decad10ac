// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "rendezvous/core/messages.h"

namespace regroup::rendezvous {

/// Beyond the time that it has to end its workers a member gets so long to confirm that they are
/// gone.
inline constexpr Duration kStopMargin = std::chrono::seconds(15);

/// True if nothing of any round runs on the node; workers may be parked there.
[[nodiscard]] inline bool has_no_workers(const NodeReport& report) noexcept {
    return report.state == NodeState::stopped || report.state == NodeState::finished;
}

}  // namespace regroup::rendezvous
