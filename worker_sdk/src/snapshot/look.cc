// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/snapshot/look.h"

#include <algorithm>

namespace regroup::snapshot {

std::vector<Version> Look::versions_after(const std::optional<Version>& kept) const {
    std::vector<Version> versions;
    for (const Candidate& candidate : candidates) {
        if (!kept || candidate.version > *kept) {
            versions.push_back(candidate.version);
        }
    }
    return versions;
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
