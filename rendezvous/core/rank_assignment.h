// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/core/messages.h"

namespace regroup::rendezvous {

/// A node as far as ranks are concerned.
struct Member {
    NodeId node;
    Offer offer;
    std::uint16_t store_port = 0;
    /// Its workers are started already: it is preferred among nodes that are new.
    bool warm = false;
    /// The step of which it has the state; 0: none.
    std::uint64_t held_step = 0;
    /// It is to leave once others have its state: who stays comes first.
    bool leaves = false;
};

/// True if host name `a` comes before `b` as a person counts: node7 before node66.
[[nodiscard]] bool natural_less(std::string_view a, std::string_view b) noexcept;

/// Which slot each node belongs to, over the rounds of a job.
///
/// A node's home slot is given once and kept: the same set of nodes gets the same group ranks in
/// every round, a survivor keeps its rank whenever the world stays dense, and a node that comes in
/// place of a lost one takes its slot. New nodes are placed by explicit slot, then by the name of
/// the slot's last owner, then in natural order of names.
class RankTable {
   public:
    /// Picks up to `nodes_max` of `candidates`, those that stay first, of these those with a home,
    /// then those that have some state, and orders them by group rank: element i of the result has
    /// group rank i. One of those that have come furthest is always among them. Requires distinct
    /// nodes.
    [[nodiscard]] std::vector<Member> arrange(std::vector<Member> candidates,
                                              std::size_t nodes_max);

   private:
    struct Home {
        NodeId node;
        std::string name;
    };
    /// Gives every candidate a home; returns them all.
    std::map<NodeId, std::size_t> settle(std::span<const Member> candidates,
                                         std::map<NodeId, std::size_t> settled);

    std::vector<Home> homes_;  // By slot; never longer than the largest round so far.
};

/// Numbers the workers of `members`, which are in group-rank order: first ranks, role ranks, world
/// sizes and the master's address and port. Round, restart count and reason are left to the caller.
[[nodiscard]] std::vector<Assignment> assign_ranks(std::span<const Member> members);

/// The address of the first member by which all others can reach it: what the user gave, else what
/// the daemon saw; when that is loopback and some other member is elsewhere, another address of it.
[[nodiscard]] std::string master_address(std::span<const Member> members);

}  // namespace regroup::rendezvous
