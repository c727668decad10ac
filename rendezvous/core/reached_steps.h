// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "rendezvous/core/messages.h"

namespace regroup::rendezvous {

/// The last committed step of a job. It decreases when all nodes with the last state are lost.
/// Pure.
class ReachedSteps {
   public:
    /// A report from a member of a round that has reported where it began.
    void heard(const NodeReport& report) noexcept {
        reached_ = std::max(reached_, report.held_step);
        ended_ = std::max(ended_, report.ended_step);
        is_stale_ = false;
    }
    /// The daemon was away and may have missed reports.
    void missed_some() noexcept { is_stale_ = true; }
    /// A round was formed. `held`: the latest step whose state it can begin with.
    void formed(std::uint64_t held) noexcept {
        held_ = held;
        is_stale_ = is_stale_ && held <= reached_;  // Otherwise a node that trained on is back.
    }
    /// The round has begun with the step `first`.
    void begun(std::uint64_t first) noexcept {
        reached_ = first;
        ended_ = 0;
        is_stale_ = false;
    }

    [[nodiscard]] std::uint64_t now() const noexcept { return reached_; }
    /// The last step that was committed before the round that begins with `first`. A step that only
    /// dead workers had committed does not count if the others begin with it: none of its work
    /// remains.
    [[nodiscard]] std::uint64_t before(std::uint64_t first) const noexcept {
        const bool is_torn = held_ > 0 && ended_ == held_ + 1 && ended_ == first;
        return is_torn ? reached_ : std::max(reached_, ended_);
    }
    /// Later steps may have been committed that no remaining node knows.
    [[nodiscard]] bool is_stale() const noexcept { return is_stale_; }

   private:
    std::uint64_t reached_ = 0;
    std::uint64_t ended_ = 0;  ///< The last step of workers that have ended since.
    std::uint64_t held_ = 0;
    bool is_stale_ = false;
};

}  // namespace regroup::rendezvous
