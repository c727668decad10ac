// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>

#include <cstdint>
#include <span>
#include <vector>

#include "worker_sdk/src/elastic/dissent.h"

namespace regroup::elastic {

/// Where a rank stands when a round begins.
struct RankState {
    std::uint64_t step = 0;     ///< Committed.
    std::uint64_t samples = 0;  ///< Consumed by those.
    /// When its training began, as link::history; where it would begin, for a fresh rank.
    std::uint64_t history = 0;
    std::uint64_t layout = 0;  ///< Hash of what it keeps.
    std::uint64_t fresh = 1;   ///< 0 once it has taken part in a round.
    std::uint64_t torn = 0;    ///< 1 while part of what it keeps may be another rank's.
    std::uint64_t digest = 0;  ///< Of what it keeps, if it is neither fresh nor torn.

    friend bool operator==(const RankState&, const RankState&) = default;
};

/// From where a round goes on.
struct Origin {
    std::uint32_t rank = 0;  ///< Has the state.
    RankState state{};
    bool is_needed = false;  ///< Somebody else has another state, or may have.
    /// Those who have been there, have committed as much as any, and hold something else. They end
    /// before anything is sent, and the others go on in another round.
    Dissent dissent{};
};

/// The rank that has committed most, of those that are whole. Of those, one that has been there
/// before, that holds what most of these hold, and the lowest. As no rank can be two steps behind
/// another that has been there, nothing is lost that any survivor has applied. Throws Error
/// `invalid_argument` naming two ranks that keep different things.
[[nodiscard]] Origin choose_origin(std::span<const RankState> rank_states);

/// Whether the state went with its last holder: some are torn, and nobody is whole that has been
/// there before. What fresh ranks have is no more than the job begins with, perhaps not even its
/// checkpoint.
[[nodiscard]] bool is_state_lost(std::span<const RankState> rank_states) noexcept;

/// What all ranks say, by rank; a collective.
[[nodiscard]] std::vector<RankState> gather_rank_states(ProcessGroup& group, const RankState& mine);

}  // namespace regroup::elastic
