// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/error.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "worker_sdk/src/nccl/lane.h"

namespace regroup::nccl {

/// The next action of all ranks of a group, each with its own part.
struct Plan {
    std::string purpose{};            ///< Errors begin with it.
    Signature signature{};            ///< Describes the exchange, which counts as a collective.
    std::uint64_t digest = 0;         ///< Of the arguments, which must be the same on all ranks.
    std::optional<Error> obstacle{};  ///< Why this rank cannot do its part.
    std::string undone{};             ///< "could not ...", of another rank that cannot.
    /// The rest of the error if the rank called `who` has passed another digest.
    std::function<std::string(const std::string& who, std::uint64_t theirs)> difference{};
};

/// Returns if all ranks of `lane` are able to do the same, and throws on every rank otherwise. If
/// the exchange itself fails, the group ends, so that no rank waits for this one. Throws the Errors
/// of an operation, too.
void agree(Lane& lane, const Plan& plan);

}  // namespace regroup::nccl
