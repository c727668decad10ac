// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "rendezvous/core/messages.h"

namespace regroup::rendezvous {

/// The time that a member has to confirm that its workers are gone, beyond the shutdown timeout.
inline constexpr Duration kStopMargin = std::chrono::seconds(15);

/// True if no worker of any round runs on the node. Suspended workers do not count.
[[nodiscard]] inline bool has_no_workers(const NodeReport& report) noexcept {
    return report.state == NodeState::stopped || report.state == NodeState::finished;
}

/// True if workers of the node hold state, or may hold it: `elastic` is false while one new process
/// has not yet identified itself, though other workers may be suspended.
[[nodiscard]] inline bool may_keep_state(const NodeReport& report) noexcept {
    return report.elastic || report.held_step > 0;
}

}  // namespace regroup::rendezvous
