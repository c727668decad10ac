// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/elastic/dissent.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "worker_sdk/src/base/text.h"

namespace regroup::elastic {
namespace {

using Ranks = std::vector<std::uint32_t>;

/// Maps each thing to the ranks for which it is the first that differs from the witness's. Without
/// a witness, maps the first thing that differs among the ranks to all of them.
std::map<std::size_t, Ranks> first_differences(const Dissent& dissent, std::size_t things,
                                               std::span<const std::uint64_t> digests) {
    const auto first_difference = [&](std::uint32_t one, std::uint32_t other) {
        const auto row = digests.subspan(one * things, things);
        const auto differs = std::ranges::mismatch(row, digests.subspan(other * things, things));
        return static_cast<std::size_t>(differs.in1 - row.begin());
    };
    std::map<std::size_t, Ranks> found;
    std::size_t first = things;
    for (const std::uint32_t rank : dissent.ranks) {
        const std::size_t at =
            first_difference(dissent.witness.value_or(dissent.ranks.front()), rank);
        first = std::min(first, at);
        found[at].push_back(rank);
    }
    return dissent.witness ? found : std::map<std::size_t, Ranks>{{first, dissent.ranks}};
}

}  // namespace

bool Dissent::is_of(std::uint32_t rank) const noexcept {
    return std::binary_search(ranks.begin(), ranks.end(), rank);
}

Dissent find_dissent(std::span<const std::optional<std::uint64_t>> by_rank) {
    std::map<std::uint64_t, Ranks> holders;
    Ranks asked;
    for (std::uint32_t rank = 0; rank < by_rank.size(); ++rank) {
        if (by_rank[rank]) {
            holders[*by_rank[rank]].push_back(rank);
            asked.push_back(rank);
        }
    }
    const auto fewer = [](const auto& a, const auto& b) {
        return a.second.size() < b.second.size();
    };
    const auto most = std::max_element(holders.begin(), holders.end(), fewer);
    if (most == holders.end()) {
        return {};
    }
    const bool decided = std::count_if(holders.begin(), holders.end(), [&](const auto& entry) {
                             return entry.second.size() == most->second.size();
                         }) == 1;
    if (!decided) {
        return {.ranks = std::move(asked), .witness = std::nullopt};
    }
    Dissent dissent{.ranks = {}, .witness = most->second.front()};
    std::copy_if(asked.begin(), asked.end(), std::back_inserter(dissent.ranks),
                 [&](std::uint32_t rank) { return by_rank[rank] != most->first; });
    return dissent;
}

Dissent find_dissent(std::span<const std::uint64_t> by_rank, std::uint32_t witness) {
    Dissent dissent{.ranks = {}, .witness = witness};
    for (std::uint32_t rank = 0; rank < by_rank.size(); ++rank) {
        if (by_rank[rank] != by_rank[witness]) {
            dissent.ranks.push_back(rank);
        }
    }
    return dissent;
}

std::string describe(const Dissent& dissent, std::span<const Thing> things,
                     std::span<const std::uint64_t> digests) {
    const auto differences = digests.empty()
                                 ? std::map<std::size_t, Ranks>{{things.size(), dissent.ranks}}
                                 : first_differences(dissent, things.size(), digests);
    std::string what;
    std::string saved;
    for (const auto& [column, ranks] : differences) {
        const bool is_known = column < things.size();
        const std::string name =
            is_known ? "\"" + things[column].name + "\"" : std::string("the registered state");
        what += (what.empty() ? "" : ", ") + name + " of " + listed_ranks(ranks);
        if (is_known && things[column].is_saved) {
            saved += (saved.empty() ? "" : ", ") + name;
        }
    }
    return "the replicas differ: " + what +
           (dissent.witness ? " is not what the others have"
                            : " differ, and no value is the more common one") +
           "; change registered state only in the function given to commit(), and only by values "
           "that are equal on all ranks" +
           (saved.empty() ? ""
                          : "; the save function of " + saved +
                                " must return the same bytes on all ranks: addresses, padding and "
                                "unordered maps among them are the usual cause of others");
}

}  // namespace regroup::elastic
