// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "rendezvous/core/messages.h"

namespace regroup::rendezvous {

/// Beyond the time that it has to end its workers a member gets so long to confirm that they are
/// gone.
inline constexpr Duration kStopMargin = std::chrono::seconds(15);

/// True if nothing of any round runs on the node; workers may be suspended there.
[[nodiscard]] inline bool has_no_workers(const NodeReport& report) noexcept {
    return report.state == NodeState::stopped || report.state == NodeState::finished;
}

/// True if workers of the node keep a state, or some may: beside a new process that had yet to say
/// what it is others may be suspended.
[[nodiscard]] inline bool may_keep_state(const NodeReport& report) noexcept {
    return report.elastic || report.held_step > 0;
}

}  // namespace regroup::rendezvous
