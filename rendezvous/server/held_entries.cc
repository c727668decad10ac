// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/held_entries.h"

#include <map>

namespace regroup::rendezvous {

void HeldEntries::defer(journal::Entry entry) {
    std::multimap<Instant, journal::Entry> in_order;
    for (auto& [node, held] : std::exchange(routine_, {})) {
        in_order.emplace(held.at, std::move(held));
    }
    for (auto& [at, held] : in_order) {
        deferred_.push_back(std::move(held));
    }
    deferred_.push_back(std::move(entry));
}

}  // namespace regroup::rendezvous
