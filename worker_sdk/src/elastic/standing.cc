// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/elastic/standing.h"

#include <regroup/error.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <tuple>

namespace regroup::elastic {
namespace {

auto merit(const Standing& standing) {
    return std::tuple(standing.torn == 0, standing.step, standing.fresh == 0);
}

/// Among those who hold the state that `best` holds, or ought to.
Dissent dissent_among_holders(std::span<const Standing> standings, const Standing& best) {
    std::vector<std::optional<std::uint64_t>> digests(standings.size());
    for (std::size_t rank = 0; rank < standings.size(); ++rank) {
        if (best.fresh == 0 && best.torn == 0 && merit(standings[rank]) == merit(best)) {
            digests[rank] = standings[rank].digest;
        }
    }
    return find_dissent(digests);
}

}  // namespace

Origin choose_origin(std::span<const Standing> standings) {
    Origin origin{.standing = standings.front()};
    for (std::uint32_t rank = 1; rank < standings.size(); ++rank) {
        if (standings[rank].layout != standings.front().layout) {
            throw Error(Errc::invalid_argument,
                        "rank " + std::to_string(rank) +
                            " keeps other tensors or values than rank 0: every rank must keep the "
                            "same names, counts and dtypes in the same order");
        }
        if (merit(standings[rank]) > merit(origin.standing)) {
            origin.rank = rank;
            origin.standing = standings[rank];
        }
    }
    origin.dissent = dissent_among_holders(standings, origin.standing);
    if (origin.dissent.witness) {
        origin.rank = *origin.dissent.witness;
        origin.standing = standings[origin.rank];
    }
    for (std::uint32_t rank = 0; rank < standings.size(); ++rank) {
        const Standing& other = standings[rank];
        origin.is_needed =
            origin.is_needed || (rank != origin.rank && (other.fresh != 0 || other.torn != 0 ||
                                                         other.step != origin.standing.step));
    }
    return origin;
}

bool is_state_lost(std::span<const Standing> standings) noexcept {
    const auto is_torn = [](const Standing& standing) { return standing.torn != 0; };
    const auto has_it = [](const Standing& standing) {
        return standing.torn == 0 && standing.fresh == 0;
    };
    return std::any_of(standings.begin(), standings.end(), is_torn) &&
           std::none_of(standings.begin(), standings.end(), has_it);
}

std::vector<Standing> gather_standings(ProcessGroup& group, const Standing& mine) {
    std::vector<Standing> all(group.world_size());
    group
        .all_gather(ConstTensorView(&mine, sizeof mine, DType::uint8),
                    TensorView(all.data(), all.size() * sizeof mine, DType::uint8))
        .wait();
    return all;
}

}  // namespace regroup::elastic
