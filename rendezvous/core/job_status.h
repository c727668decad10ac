// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/core/messages.h"

namespace regroup::rendezvous {

/// The state of a job at one moment, for people and for `status`.
struct JobStatus {
    enum class Membership : std::uint8_t {
        member,       ///< Of the round.
        waiting,      ///< For a round, or for a place in the current one.
        standby,      ///< The round is full; the node will replace a lost node.
        quarantined,  ///< The node is kept out after failures: see `quarantine`.
        leaving,      ///< See `leaving`.
        away,         ///< Its connection is broken.
    };
    struct Node {
        NodeId id;
        std::string name;
        std::string address;
        Membership place = Membership::waiting;
        NodeState state = NodeState::stopped;
        std::uint32_t workers = 1;
        std::uint32_t group_rank = 0;  ///< Set for members only.
        std::uint32_t first_rank = 0;  ///< Set for members only.
        bool elastic = false;
        std::uint64_t step = 0;
        std::uint64_t held_step = 0;             ///< The step whose state its workers have.
        Duration silent{};                       ///< Time since the daemon last heard from it.
        std::optional<Cause> leaving{};          ///< Why it leaves.
        std::optional<Quarantine> quarantine{};  ///< Why it is kept out.
        bool prestarted = false;                 ///< Its workers are started ahead of a round.
        RankSet finished{};                      ///< Its ranks that have ended with success.
        RoundId unheard_of = RoundId::none;      ///< The round that it has not confirmed yet.
    };
    struct Budget {
        enum class Kind : std::uint8_t { failures, node_losses, hangs, rounds_without_progress };
        Kind kind = Kind::failures;
        std::uint32_t used = 0;
        std::optional<std::uint32_t> allowed{};  ///< nullopt: no limit.
    };

    Phase phase = Phase::forming;
    Situation situation{};
    RoundId round = RoundId::none;
    std::uint32_t world_size = 0;
    bool elastic = false;
    std::uint64_t step = 0;
    Goodput goodput{};  ///< So far.
    std::uint32_t restarts = 0;
    std::vector<Node> nodes{};  ///< Members by group rank, then the others by name.
    std::vector<QuarantinedNode> quarantined{};
    std::vector<Budget> budgets{};
    std::vector<Incident> incidents{};  ///< The last ones, oldest first; at most 100.
    std::optional<Verdict> verdict{};
};
[[nodiscard]] std::string_view to_string(JobStatus::Membership place) noexcept;
[[nodiscard]] std::string_view to_string(JobStatus::Budget::Kind kind) noexcept;

}  // namespace regroup::rendezvous
