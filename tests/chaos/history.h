// SPDX-License-Identifier: Apache-2.0
//
// Combines the step logs of all workers, and checks that they form the history of one training.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/chaos/step_log.h"

namespace regroup::chaos {

/// A round in which at least one step was applied.
struct RoundHistory {
    std::uint32_t world_size = 0;
    std::uint64_t first_step = 0;
    std::uint64_t last_step = 0;
    std::int64_t first_at = 0;  ///< When the first worker applied the first step, in ns.
    std::int64_t last_at = 0;
};

/// So many errors are listed.
inline constexpr std::size_t kWrongsMax = 20;

struct History {
    std::map<std::uint64_t, RoundHistory> rounds;
    std::uint64_t steps = 0;         ///< Of the whole training.
    std::uint64_t applications = 0;  ///< Applied steps, of all workers together.
    std::uint64_t processes = 0;
    std::uint64_t digest = 0;  ///< Of the model at the end.
    /// Errors, one sentence each; only the first few.
    std::vector<std::string> wrongs;
};

/// Checks the logs of a run that has ended by itself. Errors are
/// - a step whose digest differs from `digests`, by step number. These are from a single process
///   that does each step exactly once, in order, with the samples after the last ones;
/// - a process that goes back, or does a step twice;
/// - a round that begins before the last step that one of its workers has in memory;
/// - a round in which only some ranks applied a step, unless it was its last step;
/// - ranks of the last round that did not all end after the same step. It must be the last step.
///   It may be the one before if only lost ranks applied the last one, and the round ended first.
/// With `may_go_back`, a round may begin with any step after the first one, up to the next.
[[nodiscard]] History judge(const std::vector<ProcessLog>& logs,
                            const std::vector<std::uint64_t>& digests, bool may_go_back = false);

/// The digests after steps 0, 1, ... of an undisturbed run, computed by this process.
[[nodiscard]] std::vector<std::uint64_t> undisturbed(std::uint64_t steps, std::size_t weights);

/// The number of the last step in the logs, plus one.
[[nodiscard]] std::uint64_t steps_of(const std::vector<ProcessLog>& logs);

}  // namespace regroup::chaos
