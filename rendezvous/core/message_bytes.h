// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "rendezvous/core/messages.h"

namespace regroup::rendezvous {

/// About how many bytes the value takes in memory, or in a journal: its texts, and a fixed charge
/// for each part. The same on every machine, since decisions depend on it.
[[nodiscard]] std::size_t bytes_of(const JobPolicy& policy) noexcept;
[[nodiscard]] std::size_t bytes_of(const Offer& offer) noexcept;
[[nodiscard]] std::size_t bytes_of(const NodeReport& report) noexcept;
[[nodiscard]] std::size_t bytes_of(const Join& join) noexcept;
[[nodiscard]] std::size_t bytes_of(const Operate& operate) noexcept;
[[nodiscard]] std::size_t bytes_of(const FromAgent& message) noexcept;

/// Removes what a report says to people and about single ranks, which is nearly all of its size.
/// The rest is enough for every decision but the choice of the rank that a hanging round waits for.
void remove_details(NodeReport& report);

}  // namespace regroup::rendezvous
