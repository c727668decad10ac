// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "rendezvous/core/messages.h"
#include "rendezvous/core/telemetry.h"
#include "rendezvous/view/straggler_detector.h"

namespace regroup::rendezvous {

/// The ranks that let the others wait, by the time that each spends outside of collectives: the
/// others spend theirs inside, until the last one has come. So no clocks are compared. Begins anew
/// with each round. Pure.
class SlowRanks {
   public:
    /// `node`, a member of `round`, the present one, has told a window. Returns the ranks that are
    /// slow since now.
    [[nodiscard]] std::vector<SlowRank> hear(const NodeId& node, RoundId round,
                                             const WorkWindow& window);

    /// Slowest first; kSlowRanksMax at most.
    [[nodiscard]] const std::vector<SlowRank>& now() const noexcept { return slow_; }

   private:
    /// How much longer than the median of the others counts.
    static constexpr double kExcess = 0.1;

    RoundId round_ = RoundId::none;
    std::uint64_t window_ = 0;
    std::set<NodeId> nodes_;                     ///< Have told this window.
    std::map<std::uint32_t, Duration> work_;     ///< In this window, by rank.
    std::optional<StragglerDetector> detector_;  ///< Of as many ranks as have told a window.
    std::size_t ranks_ = 0;
    std::vector<SlowRank> slow_;
};

}  // namespace regroup::rendezvous
