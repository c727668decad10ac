// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/core/places.h"

namespace regroup::rendezvous {

void Places::put(const NodeId& node, Place place, bool stays) {
    const auto [found, is_new] = entries_.try_emplace(node);
    Entry& entry = found->second;
    if (!is_new && entry.place == place && entry.stays == stays) {
        return;
    }
    if (!is_new) {
        staying_[index(entry.place)] -= entry.stays ? 1U : 0U;
    }
    if (is_new) {
        nodes_[index(place)].insert(node);
    } else if (entry.place != place) {
        nodes_[index(place)].insert(nodes_[index(entry.place)].extract(node));
    }
    staying_[index(place)] += stays ? 1U : 0U;
    if (stays) {
        not_staying_.erase(node);
    } else {
        not_staying_.insert(node);
    }
    entry = {place, stays};
}

void Places::remove(const NodeId& node) {
    const auto found = entries_.find(node);
    if (found != entries_.end()) {
        staying_[index(found->second.place)] -= found->second.stays ? 1U : 0U;
        nodes_[index(found->second.place)].erase(node);
        not_staying_.erase(node);
        entries_.erase(found);
    }
}

}  // namespace regroup::rendezvous
