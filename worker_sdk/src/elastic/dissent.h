// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace regroup::elastic {

/// Ranks that hold another state than the majority of the ranks that should hold the same. Every
/// rank that knows all digests gets the same result.
struct Dissent {
    std::vector<std::uint32_t> ranks;  ///< In order; none if all agree.
    /// A rank with the correct state. Empty if there is no most common digest; then `ranks` are all
    /// ranks with a digest.
    std::optional<std::uint32_t> witness;

    [[nodiscard]] explicit operator bool() const noexcept { return !ranks.empty(); }
    [[nodiscard]] bool is_of(std::uint32_t rank) const noexcept;
};

/// Finds the ranks whose digest is not the most common one; ranks without a digest do not count.
[[nodiscard]] Dissent find_dissent(std::span<const std::optional<std::uint64_t>> by_rank);
/// Finds the ranks whose digest is not that of `witness`, which has sent them its state.
[[nodiscard]] Dissent find_dissent(std::span<const std::uint64_t> by_rank, std::uint32_t witness);

/// A piece of the registered state, for people.
struct Thing {
    std::string name;
    bool is_saved = false;  ///< Its bytes come from a function of the program.
};

/// A sentence for people. `digests` has a row for each rank with a digest for each of `things`; it
/// is empty if the ranks could not exchange digests.
[[nodiscard]] std::string describe(const Dissent& dissent, std::span<const Thing> things,
                                   std::span<const std::uint64_t> digests);

}  // namespace regroup::elastic
