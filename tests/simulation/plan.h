// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/random.h"
#include "rendezvous/core/messages.h"

namespace regroup::simulation {

enum class FaultKind : std::uint8_t {
    agent_killed,  ///< SIGKILL: the kernel closes its connection, its workers die with it.
    host_lost,     ///< Power cut: its connections end without FIN.
    partition,     ///< Nothing passes between a host and the daemon.
    deaf_agent,    ///< Only messages from the daemon are lost.
    mute_agent,    ///< Only messages from the agent are lost.
    agent_paused,  ///< SIGSTOP, later SIGCONT.
    daemon_paused,
    connection_broken,   ///< Both ends see a reset.
    connection_doubled,  ///< The agent opens a second connection before the daemon saw the first
                         ///< end.
    daemon_killed,       ///< Restarted later.
    agent_signalled,     ///< SIGTERM, sometimes twice: a planned departure.
    worker_killed,       ///< One worker segfaults; its peers fail as a consequence.
    operator_stop,
    slow_network,  ///< For a while every delay is fifty times as long.
    mass_outage,   ///< Every host loses its agent at once.
    // The following apply only to daemons that keep a log.
    daemon_killed_midway,  ///< Between recording a decision and sending it.
    etcd_cut,              ///< One daemon cannot reach etcd.
    etcd_away,             ///< No daemon can reach etcd.
    // The following apply only to elastic jobs.
    worker_hung,     ///< One worker hangs.
    operator_drain,  ///< An operator drains a node.
    peers_severed,   ///< Two live workers of a round lose their connection.
};
inline constexpr std::size_t kFaultKinds = 21;
[[nodiscard]] const char* to_string(FaultKind kind) noexcept;

/// The state that survives a daemon.
enum class Durability : std::uint8_t {
    memory,      ///< None: a restarted daemon begins anew.
    journal,     ///< One daemon's journal on its disk.
    replicated,  ///< A log in etcd, by two daemons of which one leads.
};

struct NetworkPlan {
    Duration delay{};        ///< One way, minimum.
    Duration jitter{};       ///< Added, uniform.
    double straggler = 0;    ///< Chance of a packet that takes a hundred times as long.
    double loss = 0;         ///< Chance of a message that vanishes though its connection lives.
    double duplication = 0;  ///< Chance of a message that comes twice.
    bool reorder = false;    ///< Messages of one connection may overtake each other.
    /// If false, messages wait until the partition heals, as with TCP.
    bool partitions_drop = true;
};

/// Everything that one seed decides beforehand. Most runs have only some kinds of faults: a run
/// with all of them never reaches the states after a long calm.
struct Plan {
    std::uint32_t hosts = 2;
    std::vector<FaultKind> faults;
    Duration fault_interval{};  ///< Mean.
    Duration outage_max{};      ///< Of any fault that ends again.

    Durability durability = Durability::memory;
    Duration lease{};       ///< Of the leader.
    Duration etcd_delay{};  ///< One way; half to twice this value.
    Duration skew{};        ///< By how much the second daemon's clock is ahead.

    NetworkPlan network{};

    std::int64_t drift_ppm_max = 0;  ///< How much faster or slower a host's clock may run, in ppm.

    bool endless = false;  ///< Training never finishes.
    Duration work_min{};   ///< From the launch of the workers to their success.
    Duration work_max{};
    Duration skew_max{};          ///< Between the first worker's success and the last one's.
    Duration failure_interval{};  ///< Mean time between a worker's own failures; zero: none.
    double crash_at_start = 0;
    double start_error = 0;
    Duration consequence_max{};  ///< From a peer's death to a worker's own, at most.
    double hang = 0;             ///< Chance that a worker hangs instead when a peer dies.
    Duration drain_max{};        ///< From SIGTERM to the worker's end.
    double ignores_term = 0;

    Duration attach_max{};      ///< From a process's start to its Hello.
    Duration suspension_max{};  ///< From the end of a round until a worker has suspended.
    double never_suspends = 0;  ///< Chance that a worker does not suspend.
    /// Zero, or how long some workers are in user code and do not notice the end.
    Duration own_work{};
    /// Zero, or the longest time that a check of the node's health takes after a failure.
    Duration health_check{};
    double unhealthy = 0;      ///< Chance that such a check finds a fault.
    bool attaches = false;     ///< Workers that end with their round use the SDK, too.
    bool housed = false;       ///< A launcher runs the daemon and keeps its journal.
    double dies_of_peers = 0;  ///< Chance that an elastic worker dies when a peer does.
    Duration apply_max{};      ///< From a vote until a rank has applied the step.
    Duration hang_limit{};     ///< The longest time for which a group may stand still.

    [[nodiscard]] bool keeps_log() const noexcept { return durability != Durability::memory; }
    [[nodiscard]] bool is_replicated() const noexcept {
        return durability == Durability::replicated;
    }
    [[nodiscard]] std::uint32_t daemons() const noexcept { return is_replicated() ? 2 : 1; }

    [[nodiscard]] static Plan from_seed(std::uint64_t seed);
    /// The same hosts and jobs, without faults.
    [[nodiscard]] Plan calm() const;
};

/// One job of a run; a run starts another one when a job has ended.
struct JobPlan {
    rendezvous::JobPolicy policy;
    std::vector<std::uint32_t> workers;               ///< By host.
    std::vector<std::optional<std::uint32_t>> slots;  ///< By host.
    std::vector<std::string> rank_keys;               ///< By host.
    Duration join_timeout{};
    Duration start_spread{};  ///< All hosts start within this time.
    bool elastic = false;     ///< The job is elastic.
    Duration step_time{};     ///< Of their training.
    /// The launcher of host 0 runs the daemon, which ends with that process. The next
    /// launcher restores it from the journal.
    bool hosted = false;

    /// `second` draws the values that were added later, so that old seeds replay as before.
    [[nodiscard]] static JobPlan draw(Random& random, Random& second, const Plan& plan);
};

/// Uniform in [low, high].
[[nodiscard]] Duration between(Random& random, Duration low, Duration high);
/// Exponentially distributed, at most eight times the mean.
[[nodiscard]] Duration exponential(Random& random, Duration mean);

}  // namespace regroup::simulation
