// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>

#include "rendezvous/base/clock.h"

namespace regroup::rendezvous {

/// Bytes that a peer may use up: `burst` at first, and then `per_second` more each second, up to
/// `burst` again.
class Allowance {
   public:
    struct Rate {
        std::size_t burst = 0;
        std::size_t per_second = 0;
    };
    explicit Allowance(Rate rate) : rate_(rate), left_(static_cast<double>(rate.burst)) {}

    /// Uses up `bytes`; false, and nothing is used up, if fewer are left. `now` never decreases.
    [[nodiscard]] bool take(std::size_t bytes, Instant now) {
        refill(now);
        if (left_ < static_cast<double>(bytes)) {
            return false;
        }
        left_ -= static_cast<double>(bytes);
        return true;
    }
    /// `bytes` that were taken are not used up after all.
    void give_back(std::size_t bytes) {
        left_ = std::min(static_cast<double>(rate_.burst), left_ + static_cast<double>(bytes));
    }
    /// True if it is as good as new.
    [[nodiscard]] bool is_full(Instant now) {
        refill(now);
        return left_ >= static_cast<double>(rate_.burst);
    }

   private:
    void refill(Instant now) {
        const double seconds = std::chrono::duration<double>(now - std::min(now, at_)).count();
        left_ = std::min(static_cast<double>(rate_.burst),
                         left_ + seconds * static_cast<double>(rate_.per_second));
        at_ = now;
    }

    Rate rate_;
    double left_;
    Instant at_ = Instant::max();  // Of the last refill; max: never yet.
};

}  // namespace regroup::rendezvous
