// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "rendezvous/core/messages.h"

namespace regroup::rendezvous {

/// Up to which step a job has committed: less than before once all who had the last state are lost.
/// Pure.
class ReachedSteps {
   public:
    /// A member's word of a round that has said where it began.
    void heard(const NodeReport& report) noexcept {
        reached_ = std::max(reached_, report.held_step);
        ended_ = std::max(ended_, report.ended_step);
        is_stale_ = false;
    }
    /// Nobody has listened to the members for a while.
    void missed_some() noexcept { is_stale_ = true; }
    /// `held`: the furthest state that the next round can begin with.
    void formed(std::uint64_t held) noexcept {
        held_ = held;
        is_stale_ = is_stale_ && held <= reached_;  // Else somebody has trained on, and is back.
    }
    /// It has begun with the step `first`.
    void begun(std::uint64_t first) noexcept {
        reached_ = first;
        ended_ = 0;
        is_stale_ = false;
    }

    [[nodiscard]] std::uint64_t now() const noexcept { return reached_; }
    /// The last step that had been committed before the round that begins with `first`. One that
    /// only who died knew to be committed, and that the others go on with, does not count: it was
    /// done by nobody whose work remains.
    [[nodiscard]] std::uint64_t before(std::uint64_t first) const noexcept {
        const bool is_torn = held_ > 0 && ended_ == held_ + 1 && ended_ == first;
        return is_torn ? reached_ : std::max(reached_, ended_);
    }
    /// More may have been committed before: who knew of it is lost.
    [[nodiscard]] bool is_stale() const noexcept { return is_stale_; }

   private:
    std::uint64_t reached_ = 0;
    std::uint64_t ended_ = 0;  ///< By workers that have ended since.
    std::uint64_t held_ = 0;
    bool is_stale_ = false;
};

}  // namespace regroup::rendezvous
