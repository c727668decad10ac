// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <utility>

#include "rendezvous/base/clock.h"
#include "rendezvous/core/round_id.h"

namespace regroup::rendezvous {

/// Waiting nodes that were told to start their workers' processes ahead of a round.
class Prestarts {
   public:
    void add(const NodeId& node, Instant now) {
        if (since_.emplace(node, now).second) {
            cold_.emplace(now, node);
        }
    }
    void remove(const NodeId& node) {
        set_warm(node);
        since_.erase(node);
    }
    /// The workers of the node have started.
    void set_warm(const NodeId& node) {
        if (const auto found = since_.find(node); found != since_.end()) {
            cold_.erase({found->second, node});
        }
    }
    [[nodiscard]] bool contains(const NodeId& node) const { return since_.contains(node); }
    [[nodiscard]] std::size_t size() const noexcept { return since_.size(); }
    /// When the last node whose workers have not started yet was told; Instant::min() if all have.
    [[nodiscard]] Instant last_cold() const {
        return cold_.empty() ? Instant::min() : cold_.rbegin()->first;
    }

   private:
    std::map<NodeId, Instant> since_;
    std::set<std::pair<Instant, NodeId>> cold_;
};

}  // namespace regroup::rendezvous
