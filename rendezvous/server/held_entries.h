// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rendezvous/core/messages.h"
#include "rendezvous/journal/journal.h"

namespace regroup::rendezvous {

/// The entries of a job that wait until they are worth an append to its journal.
class HeldEntries {
   public:
    /// Holds back a routine heartbeat until the next other entry.
    void hold(const NodeId& node, journal::Entry entry) {
        routine_.insert_or_assign(node, std::move(entry));
    }
    /// Holds back, for a short time, a report that decided nothing.
    void defer(journal::Entry entry);
    [[nodiscard]] std::size_t deferred_count() const noexcept { return deferred_.size(); }
    /// The entries, without the heartbeats since the last other one, in order.
    [[nodiscard]] std::vector<journal::Entry> take() { return std::exchange(deferred_, {}); }
    /// `entry` and the entries that waited for it, in order.
    [[nodiscard]] std::vector<journal::Entry> take_with(journal::Entry entry) {
        defer(std::move(entry));
        return take();
    }

   private:
    std::unordered_map<NodeId, journal::Entry> routine_;
    std::vector<journal::Entry> deferred_;
};

}  // namespace regroup::rendezvous
