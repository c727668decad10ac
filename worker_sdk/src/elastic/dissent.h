// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace regroup::elastic {

/// Ranks that hold another state than most of those that ought to hold the same. Every rank that
/// knows all digests comes to the same finding.
struct Dissent {
    std::vector<std::uint32_t> ranks;  ///< In order; none if all agree.
    /// One that holds what is right; none if no digest is more common than all others, so that
    /// nobody can tell what is. Then `ranks` are all that were asked.
    std::optional<std::uint32_t> witness;

    [[nodiscard]] explicit operator bool() const noexcept { return !ranks.empty(); }
    [[nodiscard]] bool is_of(std::uint32_t rank) const noexcept;
};

/// Whose digest is not the most common one; ranks without one have no say.
[[nodiscard]] Dissent find_dissent(std::span<const std::optional<std::uint64_t>> by_rank);
/// Whose digest is not that of `witness`, from whom all have what they hold.
[[nodiscard]] Dissent find_dissent(std::span<const std::uint64_t> by_rank, std::uint32_t witness);

/// A sentence for a person. `digests` has a row of one for each of `names` for each rank, or
/// nothing, if they did not get about.
[[nodiscard]] std::string describe(const Dissent& dissent, std::span<const std::string> names,
                                   std::span<const std::uint64_t> digests);

}  // namespace regroup::elastic
