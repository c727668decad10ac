// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/elastic/rank_state.h"

#include <regroup/error.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <tuple>

namespace regroup::elastic {
namespace {

auto merit(const RankState& state) {
    return std::tuple(state.torn == 0, state.step, state.fresh == 0);
}

/// Compares the ranks that should hold the same state as `best`.
Dissent dissent_among_holders(std::span<const RankState> rank_states, const RankState& best) {
    std::vector<std::optional<std::uint64_t>> digests(rank_states.size());
    for (std::size_t rank = 0; rank < rank_states.size(); ++rank) {
        if (best.fresh == 0 && best.torn == 0 && merit(rank_states[rank]) == merit(best)) {
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
        origin.is_needed =
            origin.is_needed || (rank != origin.rank && (other.fresh != 0 || other.torn != 0 ||
                                                         other.step != origin.state.step));
    }
    return origin;
}

bool is_state_lost(std::span<const RankState> rank_states) noexcept {
    const auto is_torn = [](const RankState& state) { return state.torn != 0; };
    const auto has_it = [](const RankState& state) { return state.torn == 0 && state.fresh == 0; };
    return std::any_of(rank_states.begin(), rank_states.end(), is_torn) &&
           std::none_of(rank_states.begin(), rank_states.end(), has_it);
}

std::vector<RankState> gather_rank_states(ProcessGroup& group, const RankState& mine) {
    std::vector<RankState> all(group.world_size());
    group
        .all_gather(ConstTensorView(&mine, sizeof mine, DType::uint8),
                    TensorView(all.data(), all.size() * sizeof mine, DType::uint8))
        .wait();
    return all;
}

}  // namespace regroup::elastic
