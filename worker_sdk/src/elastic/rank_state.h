// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "worker_sdk/src/elastic/dissent.h"

namespace regroup::elastic {

enum class Condition : std::uint64_t {
    fresh,  ///< The state of a rank that has not taken part in a round yet.
    whole,  ///< The state after a committed step.
    torn,   ///< An interrupted transfer may have mixed the states of two ranks.
};

/// The state of a rank when a round begins.
struct RankState {
    std::uint64_t step = 0;     ///< Committed steps.
    std::uint64_t samples = 0;  ///< Consumed by these steps.
    /// The begin of its training, as link::history; a new value for a fresh rank.
    std::uint64_t history = 0;
    std::uint64_t layout = 0;  ///< Hash of the names, counts and dtypes of its registered state.
    Condition condition = Condition::fresh;
    std::uint64_t digest = 0;  ///< Of its registered state, if that is whole.

    friend bool operator==(const RankState&, const RankState&) = default;
};

/// The rank whose state a round continues from.
struct Origin {
    std::uint32_t rank = 0;
    RankState state{};
    bool is_needed = false;  ///< Another rank has another state, or may have.
    /// Survivors that have committed as many steps as any, but hold another state. They end before
    /// the state is sent, and the others go on in another round.
    Dissent dissent{};
};

/// Chooses the rank that has committed most steps among those that are not torn; among equals a
/// survivor is preferred to a fresh rank, then the state of the majority, then the lowest rank. No
/// survivor can be two steps behind another, so no step is lost that a survivor has applied. Throws
/// Error `invalid_argument` naming two ranks with different layouts.
[[nodiscard]] Origin choose_origin(std::span<const RankState> rank_states);

/// Whether the last holder of the state is lost: some ranks are torn, and no survivor is whole.
/// Fresh ranks have only the initial state, perhaps without the checkpoint.
[[nodiscard]] bool is_state_lost(std::span<const RankState> rank_states) noexcept;

}  // namespace regroup::elastic
