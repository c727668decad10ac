// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/core/node_failures.h"

#include <algorithm>
#include <utility>

namespace regroup::rendezvous {

bool NodeFailures::count(const std::string& name, Instant now) {
    if (failures_max_ == 0 || quarantined_.contains(name)) {
        return false;
    }
    if (failures_.size() >= kNamesLimit && !failures_.contains(name)) {
        failures_.erase(std::min_element(
            failures_.begin(), failures_.end(),
            [](const auto& a, const auto& b) { return a.second.back() < b.second.back(); }));
    }
    std::vector<Instant>& failures = failures_[name];
    std::erase_if(failures, [&](Instant at) { return now >= after(at, window_); });
    if (failures.size() == failures_max_) {
        failures.erase(failures.begin());
    }
    failures.push_back(now);
    return failures.size() == failures_max_;
}

void NodeFailures::quarantine(const std::string& name, Cause cause, bool asked, Instant now) {
    failures_.erase(name);
    if (quarantined_.size() < kNamesLimit) {
        quarantined_[name] = {{std::move(cause), asked, failures_max_, window_},
                              after(now, window_)};
    }
}

std::vector<std::string> NodeFailures::take_if(bool (*is_it)(const Entry&, Instant), Instant now) {
    std::vector<std::string> names;
    for (const auto& [name, entry] : quarantined_) {
        if (is_it(entry, now)) {
            names.push_back(name);
        }
    }
    for (const std::string& name : names) {
        quarantined_.erase(name);
    }
    return names;
}

std::vector<std::string> NodeFailures::release() {
    return take_if([](const Entry& entry, Instant) { return !entry.why.asked; }, Instant{});
}

std::vector<std::string> NodeFailures::expire(Instant now) {
    return take_if([](const Entry& entry, Instant at) { return at >= entry.until; }, now);
}

bool NodeFailures::any_to_release() const {
    return std::any_of(quarantined_.begin(), quarantined_.end(),
                       [](const auto& entry) { return !entry.second.why.asked; });
}

Instant NodeFailures::next_deadline() const {
    Instant result = Instant::max();
    for (const auto& [name, entry] : quarantined_) {
        result = std::min(result, entry.until);
    }
    return result;
}

}  // namespace regroup::rendezvous
