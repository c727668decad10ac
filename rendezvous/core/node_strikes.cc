// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/core/node_strikes.h"

#include <algorithm>
#include <utility>

#include "rendezvous/core/wording.h"

namespace regroup::rendezvous {

bool NodeStrikes::strike(const std::string& name, Instant now) {
    if (strikes_max_ == 0 || aside_.contains(name)) {
        return false;
    }
    if (strikes_.size() >= kNamesLimit && !strikes_.contains(name)) {
        strikes_.erase(std::min_element(
            strikes_.begin(), strikes_.end(),
            [](const auto& a, const auto& b) { return a.second.back() < b.second.back(); }));
    }
    std::vector<Instant>& strikes = strikes_[name];
    std::erase_if(strikes, [&](Instant at) { return now >= after(at, window_); });
    if (strikes.size() == strikes_max_) {
        strikes.erase(strikes.begin());
    }
    strikes.push_back(now);
    return strikes.size() == strikes_max_;
}

void NodeStrikes::set_aside(const std::string& name, std::string reason, Instant now, bool firm) {
    strikes_.erase(name);
    if (aside_.size() < kNamesLimit) {
        aside_[name] = Aside{std::move(reason), after(now, window_), firm};
    }
}

std::vector<std::string> NodeStrikes::pardon() {
    std::vector<std::string> names;
    for (const auto& [name, aside] : aside_) {
        if (!aside.firm) {
            names.push_back(name);
        }
    }
    for (const std::string& name : names) {
        aside_.erase(name);
    }
    return names;
}

std::vector<std::string> NodeStrikes::expire(Instant now) {
    std::vector<std::string> names;
    for (const auto& [name, aside] : aside_) {
        if (now >= aside.until) {
            names.push_back(name);
        }
    }
    for (const std::string& name : names) {
        aside_.erase(name);
    }
    return names;
}

std::string NodeStrikes::too_many() const {
    return counted(strikes_max_, "round") + " ended because of it within " +
           format_duration(window_);
}

Instant NodeStrikes::next_deadline() const {
    Instant result = Instant::max();
    for (const auto& [name, aside] : aside_) {
        result = std::min(result, aside.until);
    }
    return result;
}

}  // namespace regroup::rendezvous
