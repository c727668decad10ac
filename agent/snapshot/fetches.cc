// SPDX-License-Identifier: Apache-2.0
#include "agent/snapshot/fetches.h"

#include <optional>

namespace regroup::agent {

struct Fetches::Entry {
    std::optional<Image> image;  ///< Empty: is being fetched.
};

Fetches::Image Fetches::get(const snapshot::Ask& ask) {
    const Key key = key_of(ask);
    std::unique_lock lock(mutex_);
    auto& place = entries_[key];
    const bool is_mine = place == nullptr;
    if (is_mine) {
        place = std::make_shared<Entry>();
    }
    const std::shared_ptr<Entry> entry = place;
    if (!is_mine) {
        done_.wait(lock, [&] { return entry->image.has_value(); });
        return *entry->image;
    }
    lock.unlock();
    Image image = get_(ask);
    lock.lock();
    entry->image = image;
    if (const auto found = entries_.find(key);
        !image && found != entries_.end() && found->second == entry) {
        entries_.erase(found);
    }
    done_.notify_all();
    return image;
}

std::shared_ptr<ImageMemory> Fetches::find(const snapshot::Ask& ask) {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(key_of(ask));
    return found != entries_.end() && found->second->image && *found->second->image
               ? **found->second->image
               : nullptr;
}

void Fetches::drop(const std::string& state, const snapshot::Version& whole) {
    const std::lock_guard lock(mutex_);
    std::erase_if(entries_, [&](const auto& each) {
        return std::get<snapshot::PartId>(each.first).name == state &&
               std::get<snapshot::Version>(each.first) < whole;
    });
}

void Fetches::drop_all() {
    const std::lock_guard lock(mutex_);
    entries_.clear();
}

}  // namespace regroup::agent
