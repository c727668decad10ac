// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/result.h"

namespace regroup::rendezvous {

/// What an exit code asks for.
enum class Reaction : std::uint8_t {
    restart,       ///< A failure as any other: a new round, charged to the budget of failures.
    fail,          ///< Trying again cannot help: the job is closed.
    retry,         ///< Not the program's fault: a new round, charged to nothing.
    replace_node,  ///< The node is bad: it is set aside, and another takes its place.
};
[[nodiscard]] std::string_view to_string(Reaction reaction) noexcept;

/// What a job may lose before it is closed; nothing in a field means any number.
struct Budgets {
    std::optional<std::uint32_t> hangs;   ///< Rounds that hung. Without a number, as failures.
    std::optional<std::uint32_t> losses;  ///< Nodes lost.
    /// Committed steps after which all that was used is given back; 0: never.
    std::uint64_t refill_steps = 0;
    /// The job is closed, with an exit code of its own, after so many rounds in a row that failed
    /// or hung without one more committed step; 0: never. Counts for jobs that report steps, and
    /// for `Reaction::retry` and `replace_node` in all jobs. Lost nodes do not count: no program
    /// can help it that its machines are taken away.
    std::uint32_t no_progress_max = 5;
    /// Before the n-th restart in a row without progress (from the second on) there is a wait of
    /// this times 2^(n-2), a quarter more or less, at most half a minute.
    Duration delay = std::chrono::milliseconds(100);
    /// A node to which so many ends of rounds within `node_failures_window` are charged is set
    /// aside for that long, unless too few nodes would be left; 0: never.
    std::uint32_t node_failures_max = 3;
    Duration node_failures_window = std::chrono::minutes(10);

    friend bool operator==(const Budgets&, const Budgets&) = default;
};

/// What all members of a job must agree on. A node whose policy differs is refused when it joins.
struct JobPolicy {
    /// Fewest nodes that may form a round. At least 1.
    std::uint32_t nodes_min = 1;
    /// Most nodes in a round; further ones wait as standbys. At least `nodes_min`.
    std::uint32_t nodes_max = 1;
    /// Worker failures that the job survives; the next one closes it. Lost nodes and growth are
    /// free.
    std::uint32_t restarts_max = 0;
    /// How long the door stays open once `nodes_min` have joined a first round. Zero closes at
    /// once.
    Duration last_call = std::chrono::seconds(3);
    /// A node silent for this long is lost. Agents report three times as often.
    Duration heartbeat_timeout = std::chrono::seconds(3);
    /// From asking workers to stop (SIGTERM) to forcing them (SIGKILL).
    Duration shutdown_timeout = std::chrono::seconds(30);
    /// A running round is stopped to let waiting nodes in only once it is this old.
    Duration grow_after = std::chrono::seconds(5);
    /// After a round: how long the next one waits for members whose fate is not known, so that
    /// failures of one cause make one round. Skipped when all who are missing are known dead.
    Duration regroup_window = std::chrono::milliseconds(200);
    /// Nodes beyond `nodes_max` that wait with their workers' processes started. Further ones wait
    /// without.
    std::uint32_t standbys_max = 0;
    /// How long workers that keep their processes may take to the next step boundary when a round
    /// is to change without losing a step; after that the round is stopped as for a failure.
    Duration prepare_timeout = std::chrono::minutes(2);
    /// By exit code; others are `Reaction::restart`.
    std::map<int, Reaction> on_exit{};
    Budgets budgets{};
    /// Base name of the program that the workers run.
    std::string program;

    friend bool operator==(const JobPolicy&, const JobPolicy&) = default;
};

/// Checks the relations between the fields; the error names those that disagree.
Result<void> validate(const JobPolicy& policy);

}  // namespace regroup::rendezvous
