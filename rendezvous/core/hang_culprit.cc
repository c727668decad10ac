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
            return std::tuple(p.step, p.operations, !p.stopped, p.waiting,
                              p.rank != first_to_complain, p.rank);
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
    if (last.waiting && !last.stopped && !others_are_ahead) {
        return std::nullopt;
    }
    HangCulprit culprit;
    culprit.rank = last.rank;
    culprit.doing = last.doing;
    culprit.step = last.step;
    culprit.operations = last.operations;
    culprit.kind = HangCulprit::Kind::behind;
    if (last.stopped) {
        culprit.kind = HangCulprit::Kind::stopped;
    } else if (last.waiting) {
        culprit.kind = HangCulprit::Kind::mismatch;
    }
    culprit.others_wait = positions.size() > 1 && !(last.waiting && others_are_ahead);
    return culprit;
}

bool tell_nothing(std::span<const RankPosition> positions) {
    return !positions.empty() &&
           std::all_of(positions.begin(), positions.end(), [](const RankPosition& p) {
               return p.step == 0 && p.operations == 0 && !p.waiting && p.doing.empty();
           });
}

std::optional<HangCulprit> find_silent(
    std::span<const RankPosition> positions, std::uint32_t first_to_complain,
    const std::function<std::string(std::uint32_t rank)>& name_of) {
    if (positions.empty()) {
        return std::nullopt;
    }
    const auto order = [&](const RankPosition& a, const RankPosition& b) {
        const auto key = [&](const RankPosition& p) {
            return std::tuple(!p.stopped, -p.silent, p.rank != first_to_complain, p.rank);
        };
        return key(a) < key(b);
    };
    const RankPosition& first = *std::min_element(positions.begin(), positions.end(), order);
    HangCulprit culprit;
    culprit.kind = first.stopped ? HangCulprit::Kind::stopped : HangCulprit::Kind::silent;
    culprit.rank = first.rank;
    culprit.node = name_of(first.rank);
    culprit.silent = first.silent;
    return culprit;
}

}  // namespace regroup::rendezvous
