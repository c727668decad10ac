// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/core/hang_culprit.h"

#include <algorithm>
#include <tuple>

namespace regroup::rendezvous {

std::optional<HangCulprit> find_culprit(std::span<const RankPosition> positions,
                                        std::uint32_t first_to_complain) {
    if (positions.empty()) {
        return std::nullopt;
    }
    const auto order = [&](const RankPosition& a, const RankPosition& b) {
        const auto key = [&](const RankPosition& p) {
            return std::tuple(p.step, p.operations, p.waiting, p.rank != first_to_complain, p.rank);
        };
        return key(a) < key(b);
    };
    const auto behind = [](const RankPosition& a, const RankPosition& b) {
        return std::tuple(a.step, a.operations) < std::tuple(b.step, b.operations);
    };
    const RankPosition& last = *std::min_element(positions.begin(), positions.end(), order);
    const bool others_are_ahead =
        std::any_of(positions.begin(), positions.end(),
                    [&](const RankPosition& other) { return behind(last, other); });
    if (last.waiting && !others_are_ahead) {
        return std::nullopt;
    }
    const std::string where = "rank " + std::to_string(last.rank) + " is " +
                              (last.doing.empty() ? "not in a collective" : "in " + last.doing) +
                              (last.step == 0 ? "" : " at step " + std::to_string(last.step));
    std::string rest;
    if (last.waiting) {
        rest = ", " + std::to_string(last.operations) +
               " collectives into its round; others are further";
    } else if (positions.size() > 1) {
        rest = "; the others wait for it";
    }
    return HangCulprit{last.rank, where + rest};
}

}  // namespace regroup::rendezvous
