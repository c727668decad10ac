// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/core/messages.h"
#include "rendezvous/core/node_slot.h"

namespace regroup::rendezvous {

/// The properties of a node that matter for ranks.
struct Member {
    NodeId node;
    Offer offer;
    std::uint16_t store_port = 0;
    /// Its workers are started already: it is preferred among new nodes.
    bool warm = false;
    /// The step whose state it has; 0: none.
    std::uint64_t held_step = 0;
    /// It is to leave once others have its state: nodes that stay come first.
    bool leaves = false;
    NodeSlot slot = 0;  ///< For the caller.
};

/// True if text `a` comes before `b` in natural order: node7 before node66.
[[nodiscard]] bool natural_less(std::string_view a, std::string_view b) noexcept;

/// The home slot of each node, over the rounds of a job.
///
/// A node gets its home slot once and keeps it. Therefore the same set of nodes gets the same group
/// ranks in every round, a survivor keeps its rank whenever the world stays dense, and a node that
/// replaces a lost one takes its slot. New nodes are placed by explicit slot, then by the name of
/// the slot's last owner, then in natural order of rank keys, then of names.
///
/// If keys have switches, a new node takes the free slot whose last owner shared most of its
/// switches. Of several standbys, the one with the nearest free slot comes in.
class RankTable {
   public:
    /// Picks up to `nodes_max` of `candidates` and orders them by group rank: element i of the
    /// result has group rank i. Nodes that stay are preferred, then nodes with a home, then nodes
    /// that have state, then those nearest to a free slot. The result always contains a node with
    /// the highest held step. Requires distinct nodes.
    [[nodiscard]] std::vector<Member> arrange(const std::vector<Member>& candidates,
                                              std::size_t nodes_max);

   private:
    struct Home {
        NodeId node;
        std::string name;
        std::string rank_key;
    };
    /// Free slots by each beginning of their last owners' keys: those of a switch under "s0.s4.",
    /// all under "".
    using Vacancies = std::map<std::string, std::set<std::size_t>, std::less<>>;
    struct Candidate {
        const Member* member = nullptr;
        std::optional<std::size_t> home{};
    };
    /// The slots of which no candidate is the owner.
    [[nodiscard]] Vacancies vacancies(std::span<const Candidate> candidates) const;
    /// Best first.
    void sort_by_preference(std::vector<Candidate>& candidates) const;
    /// Gives every candidate a home.
    void settle(std::span<Candidate> candidates);

    std::vector<Home> homes_;               // By slot; never longer than the largest round so far.
    std::map<NodeId, std::size_t> owners_;  // The slots of `homes_`.
};

/// Numbers the workers of `members`, which are in group-rank order: first ranks, role ranks, world
/// sizes and the master's address and port. Round, restart count and reason are left to the caller.
[[nodiscard]] std::vector<Assignment> assign_ranks(std::span<const Member> members);

/// The address at which all members can reach the first one: the address from the user, otherwise
/// the one that the daemon saw. If that is loopback and another member is on another host, the
/// first of `other_addresses`.
[[nodiscard]] std::string master_address(std::span<const Member> members);

}  // namespace regroup::rendezvous
