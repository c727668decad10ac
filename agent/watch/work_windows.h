// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "rendezvous/base/clock.h"
#include "rendezvous/core/telemetry.h"
#include "rendezvous/worker_link/collectives_page.h"

namespace regroup::agent {

/// The time of one worker in collectives so far.
struct TimeInCollectives {
    std::int64_t pid = 0;
    bool is_known = false;  ///< Some group tells when its collectives end.
    Duration spent{};       ///< In all groups that there are now.
};

/// Any thread.
[[nodiscard]] TimeInCollectives time_in_collectives(const worker_link::CollectivesPage& page);

/// Cuts a round into windows of kWorkWindow and measures the work of the workers of this node in
/// each. Pure.
class WorkWindows {
   public:
    void begin_round(Instant now);
    /// Returns a window when it has ended, if all workers have told their collectives all the time.
    /// `workers`: by local rank. Call it a few times in each window.
    [[nodiscard]] std::optional<rendezvous::WorkWindow> look(
        Instant now, const std::vector<TimeInCollectives>& workers);

   private:
    Instant began_{};
    std::uint64_t number_ = 0;               ///< Of the present window.
    Instant since_{};                        ///< The first look in it.
    std::vector<TimeInCollectives> before_;  ///< At that look.
};

}  // namespace regroup::agent
