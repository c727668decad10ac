// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/core/places.h"

namespace regroup::rendezvous {

void Places::add(const NodeId& node, Place place, bool stays) {
    ++size_;
    ++counts_[index(place)];
    if (stays) {
        ++staying_[index(place)];
    } else {
        not_staying_.insert(node);
    }
}

void Places::remove(const NodeId& node, Place place, bool stays) {
    --size_;
    --counts_[index(place)];
    if (stays) {
        --staying_[index(place)];
    } else {
        not_staying_.erase(node);
    }
}

}  // namespace regroup::rendezvous
