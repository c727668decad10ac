// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/core/round.h"

#include <algorithm>
#include <utility>

namespace regroup::rendezvous {

namespace {

// A report has 16 broken links at most, and other signs are few.
constexpr std::uint32_t kReportsMax = 64;

}  // namespace

void Round::add_report(const NodeId& by, Evidence entry) {
    if (++said[by] <= kReportsMax) {
        evidence.push_back(std::move(entry));
    }
}

std::optional<Instant> Round::link_broke_at() const {
    const auto found = std::find_if(evidence.begin(), evidence.end(), [](const Evidence& entry) {
        return entry.as<Evidence::LinkBroken>() != nullptr;
    });
    return found == evidence.end() ? std::nullopt : std::optional(found->at);
}

bool Round::stopped_for_change() const {
    return change && end && !end->by &&
           std::none_of(evidence.begin(), evidence.end(),
                        [](const Evidence& entry) { return entry.is_decisive(); });
}

bool Round::has_lost_nodes() const {
    return std::any_of(evidence.begin(), evidence.end(), [](const Evidence& entry) {
        const auto* gone = entry.as<Evidence::NodeGone>();
        return gone != nullptr && gone->was_needed;
    });
}

Cause Round::cause_of_end() const {
    if (end) {
        return judge(evidence, *end).cause;
    }
    return change ? change->cause : Cause();
}

}  // namespace regroup::rendezvous
