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

/// What one fault did, as it came about.
struct Deed {
    Fault fault;
    bool done = false;          ///< There was something to break.
    std::int64_t began_at = 0;  ///< CLOCK_MONOTONIC, in ns.
    std::int64_t healed_at = 0;
    std::optional<int> exit_code;  ///< Of its node's launcher, if that has ended.
};

/// What is asserted of a run, in the order in which it is told.
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
    std::size_t returns = 0;  ///< Of nodes, after whatever had ended them.
    History history;
    Verdicts verdicts;
};

/// Starts the job, breaks it as `schedule` says, tells it to finish when `plan.lasts` is over, and
/// looks at everything that it left behind. Prints what happens as it happens.
[[nodiscard]] RunResult run_chaos(Cluster& cluster, const ClusterPlan& cluster_plan,
                                  const SchedulePlan& plan, const std::vector<Fault>& schedule);

}  // namespace regroup::chaos
