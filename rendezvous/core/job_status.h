// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/core/messages.h"

namespace regroup::rendezvous {

/// A job at one moment, for people and for `status`. Never parsed by us.
struct JobStatus {
    enum class Place : std::uint8_t {
        member,     ///< Of the round.
        waiting,    ///< For a round, or for a place in the running one.
        spare,      ///< The round is full; it takes the place of whoever is lost.
        set_aside,  ///< See `detail`.
        leaving,    ///< See `detail`.
        away,       ///< Its connection is broken.
    };
    struct Node {
        NodeId id;
        std::string name;
        std::string address;
        Place place = Place::waiting;
        NodeState state = NodeState::stopped;
        std::uint32_t workers = 1;
        std::uint32_t group_rank = 0;  ///< These two of members only.
        std::uint32_t first_rank = 0;
        bool resident = false;
        std::uint64_t step = 0;
        std::uint64_t held_step = 0;  ///< Of which its workers have the state.
        Duration silent{};            ///< Since it was last heard.
        std::string detail;           ///< A sentence, or empty.
    };
    struct SetAside {
        std::string name;
        std::string reason;
        Duration left{};
    };
    struct Budget {
        std::string what;  ///< "failures", "hangs", "node losses", "rounds without progress".
        std::uint32_t used = 0;
        std::optional<std::uint32_t> allowed;  ///< Nothing: any number.
    };

    std::string phase;
    std::string text;  ///< One sentence: what the job does or waits for.
    RoundId round = RoundId::none;
    std::uint32_t world_size = 0;
    bool resident = false;
    std::uint64_t step = 0;
    Goodput goodput;  ///< So far.
    std::uint32_t restarts = 0;
    std::vector<Node> nodes;  ///< Members by group rank, then the others by name.
    std::vector<SetAside> set_aside;
    std::vector<Budget> budgets;
    std::vector<Incident> incidents;  ///< The last ones, oldest first; at most 100.
    std::optional<Verdict> verdict;
};
[[nodiscard]] std::string_view to_string(JobStatus::Place place) noexcept;

}  // namespace regroup::rendezvous
