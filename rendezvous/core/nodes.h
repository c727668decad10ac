// SPDX-License-Identifier: Apache-2.0
//
// The nodes of a RendezvousCore's job. Internal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "rendezvous/core/messages.h"
#include "rendezvous/core/node_slot.h"
#include "rendezvous/core/places.h"

namespace regroup::rendezvous::core {

struct Node {
    Offer offer{};
    NodeReport report{};
    std::optional<LeaveWish> wish{};  ///< To leave: its own, or an operator's.
    Instant out_since{};              ///< When it first reported `stopped` for its round.
    /// Since when it is in no round but has workers of an older one; max: it has none.
    Instant stray_since = Instant::max();
    Instant in_user_code_until = Instant::min();  ///< Its workers suspend by then.
    Instant saw_end_at = Instant::max();  ///< When its round ended while the daemon was away.
    RoundId member_of = RoundId::none;    ///< The last round that it was a member of.
    std::uint32_t group_rank = 0;         ///< In that round.
    RoundId left_before = RoundId::none;  ///< The round before which it was to leave at a boundary.
    Place place = Place::away;
    bool stays = true;         ///< Later rounds count on it; see Places.
    NodeSlot slot = 0;         ///< Of Nodes.
    std::size_t bytes = 0;     ///< Its part of `Job::nodes_bytes`.
    std::uint64_t joined = 0;  ///< How many nodes had joined by then, this included.
};

/// The nodes by id, which is the order of all that the core does, and by slot. All facts of a
/// node lie in its Node, or are found by its slot: an event looks up one id.
class Nodes {
   public:
    using Map = std::map<NodeId, Node>;
    using Entry = Map::value_type;

    Nodes() = default;
    Nodes(const Nodes& other) : by_id_(other.by_id_), by_slot_(other.by_slot_), free_(other.free_) {
        for (Entry& entry : by_id_) {
            by_slot_[entry.second.slot] = &entry;
        }
    }
    Nodes(Nodes&&) noexcept = default;
    Nodes& operator=(const Nodes&) = delete;
    Nodes& operator=(Nodes&&) noexcept = default;
    ~Nodes() = default;

    [[nodiscard]] Map::iterator begin() noexcept { return by_id_.begin(); }
    [[nodiscard]] Map::iterator end() noexcept { return by_id_.end(); }
    [[nodiscard]] Map::const_iterator begin() const noexcept { return by_id_.begin(); }
    [[nodiscard]] Map::const_iterator end() const noexcept { return by_id_.end(); }
    [[nodiscard]] std::size_t size() const noexcept { return by_id_.size(); }
    [[nodiscard]] bool empty() const noexcept { return by_id_.empty(); }

    [[nodiscard]] bool contains(const NodeId& id) const { return by_id_.contains(id); }
    [[nodiscard]] Map::iterator find(const NodeId& id) { return by_id_.find(id); }
    [[nodiscard]] Map::const_iterator find(const NodeId& id) const { return by_id_.find(id); }
    [[nodiscard]] Node& at(const NodeId& id) { return by_id_.at(id); }
    [[nodiscard]] const Node& at(const NodeId& id) const { return by_id_.at(id); }
    /// Null if the node is gone. A slot may be given to another node with a later event.
    [[nodiscard]] Entry* in(NodeSlot slot) { return by_slot_[slot]; }
    [[nodiscard]] const Entry* in(NodeSlot slot) const { return by_slot_[slot]; }

    std::pair<Map::iterator, bool> try_emplace(const NodeId& id) {
        const auto result = by_id_.try_emplace(id);
        if (result.second) {
            if (free_.empty()) {
                free_.push_back(static_cast<NodeSlot>(by_slot_.size()));
                by_slot_.push_back(nullptr);
            }
            result.first->second.slot = free_.back();
            by_slot_[free_.back()] = &*result.first;
            free_.pop_back();
        }
        return result;
    }
    void erase(Map::iterator node) {
        by_slot_[node->second.slot] = nullptr;
        free_.push_back(node->second.slot);
        by_id_.erase(node);
    }

   private:
    Map by_id_;
    std::vector<Entry*> by_slot_;
    std::vector<NodeSlot> free_;
};

}  // namespace regroup::rendezvous::core
