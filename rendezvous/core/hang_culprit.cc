// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/core/hang_culprit.h"

#include <algorithm>
#include <tuple>

namespace regroup::rendezvous {

namespace {

constexpr const char* kStoppedBy = ", by a signal or by a debugger";

}  // namespace

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
    const std::string what = last.stopped         ? "stopped"
                             : last.doing.empty() ? "not in a collective"
                                                  : "in " + last.doing;
    const std::string where = "rank " + std::to_string(last.rank) + " is " + what +
                              (last.step == 0 ? "" : " at step " + std::to_string(last.step)) +
                              (last.stopped ? kStoppedBy : "");
    std::string rest;
    if (last.waiting && others_are_ahead) {
        rest = ", " + std::to_string(last.operations) +
               " collectives into its round; others are further";
    } else if (positions.size() > 1) {
        rest = "; the others wait for it";
    }
    return HangCulprit{last.rank, where + rest};
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
    const std::string who =
        "rank " + std::to_string(first.rank) + " on " + name_of(first.rank) + " ";
    if (first.stopped) {
        return HangCulprit{first.rank, who + "is stopped" + kStoppedBy, true};
    }
    return HangCulprit{first.rank,
                       "no worker writes anything any more; " + who +
                           (first.silent > Duration::zero()
                                ? "has been silent longest, for " + format_duration(first.silent)
                                : "is silent"),
                       false};
}

}  // namespace regroup::rendezvous
