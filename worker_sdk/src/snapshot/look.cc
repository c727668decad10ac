// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/snapshot/look.h"

#include <algorithm>

namespace regroup::snapshot {

void Look::protect_all_but(const std::optional<Version>& other) noexcept {
    const auto found = std::ranges::find_if(candidates, [&](const Candidate& candidate) {
        return candidate.parts == id.parts && candidate.version != other;
    });
    kept_before = found == candidates.end() ? std::nullopt : std::optional(found->version);
}

std::uint64_t Look::next_history(std::uint64_t now) const noexcept {
    std::uint64_t next = now;
    for (const Announcement& announcement : announcements) {
        for (const Holding& holding : announcement.holdings) {
            next = std::max(next, holding.version.history + 1);
        }
    }
    return next;
}

void Look::begin(std::uint64_t began, std::uint64_t present) noexcept {
    history = began;
    round = present;
    for (const Announcement& announcement : announcements) {
        for (const Holding& holding : announcement.holdings) {
            if (holding.version.history == history) {
                round = std::max(round, holding.version.round + 1);
            }
        }
    }
}

}  // namespace regroup::snapshot
