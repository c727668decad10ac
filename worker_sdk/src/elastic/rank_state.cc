// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/elastic/rank_state.h"

#include <regroup/error.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace regroup::elastic {
namespace {

auto merit(const RankState& state) {
    return std::tuple(state.condition != Condition::torn, state.step,
                      state.condition == Condition::whole);
}

/// Compares the ranks that should hold the same state as `best`.
Dissent dissent_among_holders(std::span<const RankState> rank_states, const RankState& best) {
    std::vector<std::optional<std::uint64_t>> digests(rank_states.size());
    for (std::size_t rank = 0; rank < rank_states.size(); ++rank) {
        if (best.condition == Condition::whole && merit(rank_states[rank]) == merit(best)) {
            digests[rank] = rank_states[rank].digest;
        }
    }
    return find_dissent(digests);
}

}  // namespace

Origin choose_origin(std::span<const RankState> rank_states) {
    Origin origin{.state = rank_states.front()};
    for (std::uint32_t rank = 1; rank < rank_states.size(); ++rank) {
        if (rank_states[rank].layout != rank_states.front().layout) {
            throw Error(Errc::invalid_argument,
                        "rank " + std::to_string(rank) +
                            " has registered other tensors or values than rank 0: every rank must "
                            "register the same names, counts and dtypes in the same order");
        }
        if (merit(rank_states[rank]) > merit(origin.state)) {
            origin.rank = rank;
            origin.state = rank_states[rank];
        }
    }
    origin.dissent = dissent_among_holders(rank_states, origin.state);
    if (origin.dissent.witness) {
        origin.rank = *origin.dissent.witness;
        origin.state = rank_states[origin.rank];
    }
    for (std::uint32_t rank = 0; rank < rank_states.size(); ++rank) {
        const RankState& other = rank_states[rank];
        origin.is_needed |= rank != origin.rank && (other.condition != Condition::whole ||
                                                    other.step != origin.state.step);
    }
    return origin;
}

bool is_state_lost(std::span<const RankState> rank_states) noexcept {
    const auto any_is = [&](Condition condition) {
        return std::ranges::find(rank_states, condition, &RankState::condition) !=
               rank_states.end();
    };
    return any_is(Condition::torn) && !any_is(Condition::whole);
}

}  // namespace regroup::elastic
