// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace regroup::worker_link {

/// The address of the node of group rank 0, as other nodes reach it. MASTER_ADDR may be that of
/// this node's agent, which relays to the store.
inline constexpr const char* kMasterNodeVariable = "REGROUP_MASTER_NODE_ADDR";

/// The place of one worker in one round.
struct WorkerPlace {
    std::uint64_t round = 0;
    std::string job{};
    std::uint32_t rank = 0;
    std::uint32_t world_size = 1;
    std::uint32_t local_rank = 0;
    std::uint32_t local_world_size = 1;
    std::uint32_t group_rank = 0;
    std::uint32_t group_world_size = 1;
    std::uint32_t role_rank = 0;
    std::uint32_t role_world_size = 1;
    std::uint32_t restart_count = 0;
    std::uint32_t max_restarts = 0;
    std::string master_addr{};
    std::uint16_t master_port = 0;
    std::string master_node_addr{};  ///< As kMasterNodeVariable; empty: `master_addr`.

    friend bool operator==(const WorkerPlace&, const WorkerPlace&) = default;
};

/// How a fact about a place is written down.
struct PlaceFact {
    const char* variable;    ///< In the environment.
    std::string_view field;  ///< In the message AssignWorker.
    unsigned traits = 0;

    /// The message may lack it. A new fact is optional, so that it needs no new version of the
    /// link.
    static constexpr unsigned kOptional = 1;
    /// The same in all rounds: a process that is started ahead of its round has the variable.
    static constexpr unsigned kFixed = 2;
    static constexpr unsigned kPositive = 4;  ///< A number from 1.

    [[nodiscard]] constexpr bool is(unsigned trait) const noexcept { return (traits & trait) != 0; }
};

/// The list of the facts: calls `take(fact, place.member...)` for each. `places` are of any types
/// with members of these names, such as Context; a fact that one of them lacks is left out.
template <class Take, class... Places>
void visit_place(const Take& take, Places&... places) {
    using Fact = PlaceFact;
    take(Fact{"REGROUP_ROUND", "round"}, places.round...);
    take(Fact{"TORCHELASTIC_RUN_ID", "job", Fact::kFixed}, places.job...);
    take(Fact{"RANK", "rank"}, places.rank...);
    take(Fact{"WORLD_SIZE", "world_size", Fact::kPositive}, places.world_size...);
    take(Fact{"LOCAL_RANK", "local_rank", Fact::kFixed}, places.local_rank...);
    take(Fact{"LOCAL_WORLD_SIZE", "local_world_size", Fact::kFixed | Fact::kPositive},
         places.local_world_size...);
    take(Fact{"GROUP_RANK", "group_rank"}, places.group_rank...);
    take(Fact{"GROUP_WORLD_SIZE", "group_world_size", Fact::kPositive}, places.group_world_size...);
    if constexpr ((requires { places.role_rank; } && ...)) {
        take(Fact{"ROLE_RANK", "role_rank", Fact::kOptional}, places.role_rank...);
        take(Fact{"ROLE_WORLD_SIZE", "role_world_size", Fact::kOptional | Fact::kPositive},
             places.role_world_size...);
    }
    take(Fact{"TORCHELASTIC_RESTART_COUNT", "restart_count", Fact::kOptional},
         places.restart_count...);
    take(Fact{"TORCHELASTIC_MAX_RESTARTS", "max_restarts", Fact::kOptional | Fact::kFixed},
         places.max_restarts...);
    take(Fact{"MASTER_ADDR", "master_addr"}, places.master_addr...);
    take(Fact{"MASTER_PORT", "master_port", Fact::kPositive}, places.master_port...);
    if constexpr ((requires { places.master_node_addr; } && ...)) {
        take(Fact{kMasterNodeVariable, "master_node_addr", Fact::kOptional},
             places.master_node_addr...);
    }
}

/// Calls `set(fact, value)` for each variable of the environment.
template <class Set>
void visit_variables(const Set& set, const WorkerPlace& place) {
    visit_place(
        [&](const PlaceFact& fact, const auto& value) {
            if constexpr (requires { std::to_string(value); }) {
                set(fact, std::to_string(value));
            } else {
                set(fact, value);
            }
        },
        place);
}

}  // namespace regroup::worker_link
