// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/chaos/cluster.h"
#include "tests/chaos/history.h"
#include "tests/chaos/schedule.h"

namespace regroup::chaos {

/// The effect of one fault.
struct Deed {
    Fault fault;
    bool done = false;          ///< False if there was nothing to break.
    std::int64_t began_at = 0;  ///< CLOCK_MONOTONIC, in ns.
    std::int64_t healed_at = 0;
    std::optional<int> exit_code;  ///< Of the launcher of its node, if it has ended.
};

/// The assertions on a run, in the order of output.
struct Verdicts {
    struct Line {
        std::string what;
        std::vector<std::string> wrongs;
    };
    std::vector<Line> lines;

    [[nodiscard]] bool all_right() const;
};

struct RunResult {
    std::vector<Deed> deeds;
    std::size_t returns = 0;  ///< Number of restarts of nodes.
    History history;
    Verdicts verdicts;
};

/// Starts the job, injects the faults of `schedule`, tells the job to finish after `plan.lasts`,
/// and checks everything that it leaves behind. Prints events as they happen.
[[nodiscard]] RunResult run_chaos(Cluster& cluster, const ClusterPlan& cluster_plan,
                                  const SchedulePlan& plan, const std::vector<Fault>& schedule);

}  // namespace regroup::chaos
