// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <set>

#include "rendezvous/core/round_id.h"

namespace regroup::rendezvous {

/// The place of a node in the job. Every decision about the node depends on it.
enum class Place : std::uint8_t {
    working,      ///< A member of the round that has workers in it, or may have.
    out,          ///< A member whose workers are suspended or have ended.
    finished,     ///< A member whose workers have all ended with success.
    ready,        ///< In no round; can take part in one at once.
    outstanding,  ///< In no round; may hold state, and will soon be ready or lost.
    leaving,      ///< In no round; is to leave.
    quarantined,  ///< In no round; kept out for a while.
    away,         ///< In no round; not usable at present.
};

/// How many nodes of a job are in each place. A node that does not stay has been asked to leave, so
/// that later rounds do not count on it. Each call costs O(1) for a node that stays.
class Places {
   public:
    void add(const NodeId& node, Place place, bool stays);
    void remove(const NodeId& node, Place place, bool stays);

    [[nodiscard]] std::size_t count(Place place) const noexcept { return counts_[index(place)]; }
    /// The number of nodes with this place that stay.
    [[nodiscard]] std::size_t staying(Place place) const noexcept { return staying_[index(place)]; }
    [[nodiscard]] std::size_t staying() const noexcept { return size_ - not_staying_.size(); }
    /// Ordered: the order is part of the behaviour.
    [[nodiscard]] const std::set<NodeId>& not_staying() const noexcept { return not_staying_; }

   private:
    static constexpr std::size_t kPlaces = 8;
    static constexpr std::size_t index(Place place) noexcept {
        return static_cast<std::size_t>(place);
    }
    std::size_t size_ = 0;
    std::array<std::size_t, kPlaces> counts_{};
    std::array<std::size_t, kPlaces> staying_{};
    std::set<NodeId> not_staying_;
};

}  // namespace regroup::rendezvous
