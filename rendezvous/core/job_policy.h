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

/// The longest time after which a silent node is lost. Until then the daemon keeps a node that may
/// be gone, so this also bounds how long a dead peer takes its memory.
inline constexpr Duration kHeartbeatTimeoutMax = std::chrono::hours(1);
/// The longest of all other times that a policy, an offer or a report states. Jobs wait in queues
/// for weeks, but no longer.
inline constexpr Duration kWaitMax = std::chrono::hours(24 * 30);

/// How the daemon reacts to an exit code.
enum class Reaction : std::uint8_t {
    restart,       ///< A new round, charged to the budget of failures.
    fail,          ///< A restart cannot help: the job is closed.
    retry,         ///< Not the program's fault: a new round, without a charge.
    replace_node,  ///< The node is bad: it is quarantined, and another node takes its place.
};
[[nodiscard]] std::string_view to_string(Reaction reaction) noexcept;

/// The order of new nodes (--rank-order).
enum class RankOrder : std::uint8_t {
    automatic,  ///< By `Offer::rank_key` where nodes state one, else by name.
    joined,     ///< In the order in which they joined.
    name,
    scheduler,  ///< By `Offer::rank_key`, as are the next two.
    topology,
    file,
};
/// The word of the flag: "auto", "joined", ...
[[nodiscard]] std::string_view to_string(RankOrder order) noexcept;

/// The losses that a job survives before it is closed. nullopt means no limit.
struct Budgets {
    std::optional<std::uint32_t> hangs;   ///< Rounds that hung; nullopt: hangs count as failures.
    std::optional<std::uint32_t> losses;  ///< Lost nodes.
    /// Committed steps after which the used budgets are reset to zero; 0: never.
    std::uint64_t refill_steps = 0;
    /// The job is closed with kExitNoProgress after this many rounds in a row that failed or hung
    /// without one more committed step; 0: never. Counts for jobs that report steps, and for
    /// `Reaction::retry` and `replace_node` in all jobs. Lost nodes do not count, since the program
    /// is not to blame for them.
    std::uint32_t no_progress_max = 5;
    /// The back-off before the n-th restart in a row without progress, from the second on, is this
    /// times 2^(n-2), plus or minus a quarter, at most 30 s.
    Duration delay = std::chrono::milliseconds(100);
    /// A node to which this many ends of rounds within `node_failures_window` are charged is
    /// quarantined for that long, unless too few nodes would be left; 0: never.
    std::uint32_t node_failures_max = 3;
    Duration node_failures_window = std::chrono::minutes(10);

    friend bool operator==(const Budgets&, const Budgets&) = default;
};

/// The settings that all nodes of a job share. A node whose policy differs is refused when it
/// joins.
struct JobPolicy {
    /// Fewest nodes that may form a round. At least 1.
    std::uint32_t nodes_min = 1;
    /// Most nodes in a round; further ones wait as standbys. At least `nodes_min`.
    std::uint32_t nodes_max = 1;
    /// Worker failures that the job survives; the next one closes it. Lost nodes and growth are not
    /// charged here.
    std::uint32_t restarts_max = 0;
    /// How long the daemon waits for more nodes once `nodes_min` have joined a first round. Zero:
    /// it does not wait.
    Duration last_call = std::chrono::seconds(3);
    /// A node silent for this long is lost. Agents report three times as often.
    Duration heartbeat_timeout = std::chrono::seconds(3);
    /// From asking workers to stop (SIGTERM) to forcing them (SIGKILL).
    Duration shutdown_timeout = std::chrono::seconds(30);
    /// A running round changes to admit waiting nodes only once it is this old.
    Duration grow_after = std::chrono::seconds(5);
    /// After a round: how long the next one waits for members that may be lost, so that failures
    /// with one cause lead to one new round. Skipped when all missing members are known to be dead.
    Duration regroup_window = std::chrono::milliseconds(200);
    /// Nodes beyond `nodes_max` that wait with their workers' processes started. Further ones wait
    /// without processes.
    std::uint32_t standbys_max = 0;
    /// How long elastic workers may take to reach the next step boundary when a round is to change
    /// without losing a step. After that the round is stopped as after a failure.
    Duration prepare_timeout = std::chrono::minutes(2);
    /// The job is closed when so long after the first rank has ended with success others still run.
    /// Zero: it is not.
    Duration finish_timeout{};
    /// The reaction by exit code; for other exit codes `Reaction::restart`.
    std::map<int, Reaction> on_exit{};
    Budgets budgets{};
    RankOrder rank_order = RankOrder::automatic;
    /// Base name of the program that the workers run.
    std::string program;

    friend bool operator==(const JobPolicy&, const JobPolicy&) = default;
};

/// That of a job of at least so many nodes if nobody says otherwise: 3 s, or so long that all
/// agents together report 1,000 times a second.
[[nodiscard]] Duration usual_heartbeat_timeout(std::uint32_t nodes_min);

/// Checks the fields and the relations between them; the error names those that disagree.
Result<void> validate(const JobPolicy& policy);

}  // namespace regroup::rendezvous
