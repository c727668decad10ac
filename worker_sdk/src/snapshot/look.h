// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "rendezvous/snapshot/holdings.h"
#include "rendezvous/snapshot/version.h"

namespace regroup::snapshot {

/// The result of a common look at the versions that exist, and the saves of each rank from then on.
struct Look {
    PartId id{};               ///< The part that this rank saves.
    bool saves = true;         ///< False: another rank of this node saves the same state.
    std::uint64_t savers = 1;  ///< How many parts are saved of each step.
    std::vector<Announcement> announcements{};
    std::vector<Candidate> candidates{};
    std::optional<Version> whole_before{};  ///< The newest whole version of earlier rounds.
    /// The loaded version, if this node keeps the part of this rank.
    std::optional<Version> loaded{};
    std::uint64_t history = 0;  ///< 0: not agreed on yet.
    std::uint64_t round = 0;
    std::optional<std::uint64_t> last_step{};  ///< Saved by this rank.

    /// Versions that may be loaded and are later than `kept`: they stay until a later one is kept.
    [[nodiscard]] std::vector<Version> versions_after(const std::optional<Version>& kept) const;
    [[nodiscard]] Version version_of(std::uint64_t step) const noexcept {
        return {history, round, step};
    }
    /// A history that is later than all that is there, and than `now`, in ns since 1970.
    [[nodiscard]] std::uint64_t next_history(std::uint64_t now) const noexcept;
    /// Sets the history, and a round so that what is saved is later than all that is there, also
    /// where rounds have no numbers, or begin again at 1. `present`: the number of the round.
    void begin(std::uint64_t began, std::uint64_t present) noexcept;
};

}  // namespace regroup::snapshot
