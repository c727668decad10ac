// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <string>

namespace regroup {

/// When all places are taken, who has to give one up for `newcomer`: the one who holds the most, if
/// those are at least two more than the newcomer holds. So nobody can keep all others out. Nothing
/// if the newcomer has to wait. Pure.
[[nodiscard]] inline std::optional<std::string> gives_way(
    const std::map<std::string, std::size_t>& held, const std::string& newcomer) {
    const auto most = std::max_element(
        held.begin(), held.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    const auto own = held.find(newcomer);
    const std::size_t few = own == held.end() ? 0 : own->second;
    return most != held.end() && most->second >= few + 2 ? std::optional(most->first)
                                                         : std::nullopt;
}

}  // namespace regroup
