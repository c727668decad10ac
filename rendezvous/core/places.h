// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>

#include "rendezvous/core/round_id.h"

namespace regroup::rendezvous {

/// Where a node stands: what every decision about it goes by.
enum class Place : std::uint8_t {
    working,      ///< A member of the round that has workers in it, or may have.
    out,          ///< A member whose workers are suspended or have ended.
    finished,     ///< A member all of whose workers ended with success.
    ready,        ///< In no round, and could take part in one at once.
    outstanding,  ///< In no round; may hold state, and is about to be ready, or to be lost.
    leaving,      ///< In no round, and is to leave.
    quarantined,  ///< In no round, and kept out for a while.
    away,         ///< In no round, and of no use to one at present.
};

/// Every node of a job by its place. One class with one update function, so that no set has to be
/// kept in step with another. Each call costs O(log nodes).
class Places {
   public:
    /// `stays`: as far as is known the node does not leave, so that later rounds count on it.
    void put(const NodeId& node, Place place, bool stays);
    void remove(const NodeId& node);

    /// Ordered: the order is part of the behaviour.
    [[nodiscard]] const std::set<NodeId>& in(Place place) const noexcept {
        return nodes_[index(place)];
    }
    [[nodiscard]] std::size_t count(Place place) const noexcept { return in(place).size(); }
    [[nodiscard]] bool is(const NodeId& node, Place place) const {
        return in(place).contains(node);
    }
    /// Of the nodes with this place those that stay.
    [[nodiscard]] std::size_t staying(Place place) const noexcept { return staying_[index(place)]; }
    /// All that do not stay.
    [[nodiscard]] const std::set<NodeId>& not_staying() const noexcept { return not_staying_; }
    [[nodiscard]] std::size_t staying() const noexcept {
        return entries_.size() - not_staying_.size();
    }

   private:
    static constexpr std::size_t kPlaces = 8;
    static constexpr std::size_t index(Place place) noexcept {
        return static_cast<std::size_t>(place);
    }
    struct Entry {
        Place place = Place::away;
        bool stays = false;
    };
    std::map<NodeId, Entry> entries_;
    std::array<std::set<NodeId>, kPlaces> nodes_;
    std::array<std::size_t, kPlaces> staying_{};
    std::set<NodeId> not_staying_;
};

}  // namespace regroup::rendezvous
