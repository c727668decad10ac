// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/shared_texts.h"

#include <algorithm>

namespace regroup::rendezvous {

namespace {

constexpr Duration kFresh = std::chrono::milliseconds(250);
constexpr Duration kFreshMax = std::chrono::seconds(5);
// A text that takes long to render is rendered less often.
constexpr int kCostFactor = 20;
// A fifth of a second of rendering may be done at once, after a time of rest.
constexpr Duration kRenewalsAhead = std::chrono::seconds(4);

}  // namespace

Duration freshness(Duration cost) noexcept {
    return std::clamp(cost * kCostFactor, kFresh, kFreshMax);
}

SharedTexts::Text SharedTexts::get(const std::string& key, const Render& render) {
    const auto found = entries_.find(key);
    return found != entries_.end() && clock_.now() < found->second.until ? found->second.text
                                                                         : make(key, render);
}

SharedTexts::Text SharedTexts::renew(const std::string& key, const Render& render) {
    const Instant asked = clock_.now();
    if (asked < renewable_) {
        return get(key, render);
    }
    Text text = make(key, render);
    const Instant now = clock_.now();
    renewable_ = after(std::max(renewable_, asked - kRenewalsAhead), (now - asked) * kCostFactor);
    return text;
}

SharedTexts::Text SharedTexts::make(const std::string& key, const Render& render) {
    const Instant began = clock_.now();
    forget(began);
    Text text = std::make_shared<const std::string>(render());
    Entry& entry = entries_[key];
    const std::size_t others = bytes_ - (entry.text ? entry.text->size() : 0);
    if (others + text->size() > bytes_max_) {
        entries_.erase(key);
        bytes_ = others;
        return text;
    }
    const Instant now = clock_.now();
    entry = {text, after(now, freshness(now - began))};
    bytes_ = others + text->size();
    return text;
}

void SharedTexts::forget(Instant now) {
    std::erase_if(entries_, [&](const auto& entry) {
        const bool is_old = now >= entry.second.until;
        bytes_ -= is_old ? entry.second.text->size() : 0;
        return is_old;
    });
}

}  // namespace regroup::rendezvous
