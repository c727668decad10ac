// SPDX-License-Identifier: Apache-2.0
//
// What the step logs of all workers say together, and whether it is the history of one training.
#pragma once

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
    std::int64_t first_at = 0;  ///< When the first worker applied the first of them, in ns.
    std::int64_t last_at = 0;
};

struct History {
    std::map<std::uint64_t, RoundHistory> rounds;
    std::uint64_t steps = 0;         ///< Of the whole training.
    std::uint64_t applications = 0;  ///< Of steps, by all workers together.
    std::uint64_t processes = 0;
    std::uint64_t digest = 0;  ///< Of the model at the end.
    /// What should not be, a sentence each; the first few.
    std::vector<std::string> wrongs;
};

/// Judges the logs of a run that has ended by itself. Wrong is
/// - a step whose model differs from `digests`, by step number: one that a single process has when
/// it
///   does each step exactly once, in order, with the samples that follow the last;
/// - a process that goes back, or does a step twice;
/// - a round that begins before the last step that is still in the memory of one of its workers;
/// - a round in which a step was applied by some ranks only, unless it was its last;
/// - a run that not every rank of its last round has ended after the same step: the last one, or
///   the one before if nobody is left who had applied that, and the round was over before it.
[[nodiscard]] History judge(const std::vector<ProcessLog>& logs,
                            const std::vector<std::uint64_t>& digests);

/// The digests after steps 0, 1, ... of an undisturbed run, by this process alone.
[[nodiscard]] std::vector<std::uint64_t> undisturbed(std::uint64_t steps, std::size_t weights);

/// The number of the last step in the logs, plus one.
[[nodiscard]] std::uint64_t steps_of(const std::vector<ProcessLog>& logs);

}  // namespace regroup::chaos
