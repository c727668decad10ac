// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>

#include "rendezvous/base/clock.h"
#include "rendezvous/core/messages.h"

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

/// By how much the journal of a job may grow for what a node says. When there is no more, its
/// message must be ignored or refused: a journal that is full protects the job no more.
class NodeAllowances {
   public:
    /// For a node that the job knows.
    [[nodiscard]] bool take(const NodeId& node, std::size_t bytes, Instant now) {
        return nodes_.try_emplace(node, kNodeRate).first->second.take(bytes, now);
    }
    /// For a new node, or an operator.
    [[nodiscard]] bool take_for_newcomer(std::size_t bytes, Instant now) {
        return newcomers_.take(bytes, now);
    }
    /// The newcomer was refused.
    void give_back(std::size_t bytes) { newcomers_.give_back(bytes); }
    /// Forgets those that are as good as new.
    void sweep(Instant now) {
        for (auto next = nodes_.begin(); next != nodes_.end();) {
            const auto entry = next++;
            if (entry->second.is_full(now)) {
                nodes_.erase(entry);
            }
        }
    }

   private:
    // A node says a few kilobytes in a round, and at most some tens more when a worker fails. At
    // these rates one node needs hours to fill the journal of its job.
    static constexpr Allowance::Rate kNodeRate{std::size_t{2} << 20U, std::size_t{4} << 10U};
    // Enough for the joins of the most nodes at once, and then for a few nodes each second.
    static constexpr Allowance::Rate kNewcomersRate{std::size_t{24} << 20U, std::size_t{8} << 10U};

    std::map<NodeId, Allowance> nodes_;  // Those that are not full.
    Allowance newcomers_{kNewcomersRate};
};

}  // namespace regroup::rendezvous
