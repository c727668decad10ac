// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/view/slow_ranks.h"

#include <algorithm>

#include "rendezvous/base/telemetry_limits.h"

namespace regroup::rendezvous {

std::vector<SlowRank> SlowRanks::hear(const NodeId& node, RoundId round, const WorkWindow& window) {
    if (round != round_) {
        *this = SlowRanks();
        round_ = round;
    }
    if (window.number > window_) {
        window_ = window.number;
        nodes_.clear();
        work_.clear();
    }
    if (window.number != window_ || !nodes_.insert(node).second) {
        return {};
    }
    std::uint32_t rank = window.first_rank;
    for (const WorkTime& work : window.work) {
        work_[rank++] = work.time;
    }
    // The ranks that have told are the first ones exactly if they are all of the world.
    const bool is_complete = work_.size() == window.world_size && !work_.empty() &&
                             work_.rbegin()->first + 1 == window.world_size;
    if (!is_complete) {
        return {};
    }
    if (!detector_ || ranks_ != work_.size()) {
        ranks_ = work_.size();
        detector_.emplace(window.world_size, kExcess);
    }
    std::vector<Duration> by_rank;
    by_rank.reserve(work_.size());
    for (const auto& [each, time] : work_) {
        by_rank.push_back(time);
    }
    const std::vector<SlowRank> found = detector_->observe(by_rank);
    slow_ = detector_->slow_ranks();
    slow_.resize(std::min(slow_.size(), kSlowRanksMax));
    return found;
}

}  // namespace regroup::rendezvous
