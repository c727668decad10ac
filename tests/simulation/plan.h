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
    host_lost,     ///< Power cut: nothing says goodbye.
    partition,     ///< Nothing passes between a host and the daemon.
    deaf_agent,    ///< Only what the daemon says is lost.
    mute_agent,    ///< Only what the agent says is lost.
    agent_paused,  ///< SIGSTOP, later SIGCONT.
    daemon_paused,
    connection_broken,   ///< Both ends see a reset.
    connection_doubled,  ///< The agent opens a second connection before the daemon saw the first
                         ///< end.
    daemon_killed,       ///< Comes back with nothing remembered.
    agent_signalled,     ///< SIGTERM, sometimes twice: a planned leave.
    worker_killed,       ///< One worker segfaults; its peers fail as a consequence.
    operator_stop,
    slow_network,  ///< For a while everything takes fifty times as long.
    mass_outage,   ///< Every host loses its agent at once.
    // The following make sense only for daemons that keep a log.
    daemon_killed_midway,  ///< Between recording a decision and sending it.
    etcd_cut,              ///< One daemon cannot reach it.
    etcd_away,             ///< Nobody can.
    // And these for jobs whose workers keep their processes.
    worker_hung,     ///< One worker does nothing any more.
    operator_drain,  ///< An operator wants a node to leave.
    peers_severed,   ///< Two workers of a round lose their connection; both live.
};
inline constexpr std::size_t kFaultKinds = 21;
[[nodiscard]] const char* to_string(FaultKind kind) noexcept;

/// What outlives a daemon.
enum class Durability : std::uint8_t {
    memory,      ///< Nothing: a daemon that comes back begins anew.
    journal,     ///< One daemon's journal on its disk.
    replicated,  ///< A log in etcd, by two daemons of which one leads.
};

/// Everything that one seed decides beforehand. Most runs have only some kinds of faults at all:
/// a run in which everything goes wrong at once never reaches the states behind long calm.
struct Plan {
    std::uint32_t hosts = 2;
    std::vector<FaultKind> faults;
    Duration fault_interval{};  ///< Mean.
    Duration outage_max{};      ///< Of anything that ends again.

    Durability durability = Durability::memory;
    Duration lease{};       ///< Of the leader.
    Duration etcd_delay{};  ///< One way, half to twice this.
    Duration skew{};        ///< How far the second daemon's clock is ahead.

    Duration delay{};        ///< One way, least.
    Duration jitter{};       ///< Added, uniform.
    double straggler = 0;    ///< Chance of a packet that takes a hundred times as long.
    double loss = 0;         ///< Chance of a message that vanishes though its connection lives.
    double duplication = 0;  ///< Chance of a message that comes twice.
    bool reorder = false;    ///< Messages of one connection overtake each other.
    bool partitions_drop = true;  ///< Else messages wait, as TCP's do, until the partition heals.

    std::int64_t drift_ppm_max = 0;  ///< How much faster or slower a host's clock may run.

    bool endless = false;  ///< Training never comes to its end.
    Duration work_min{};   ///< Time that the workers need from launch to success.
    Duration work_max{};
    Duration skew_max{};          ///< Between the first worker's success and the last one's.
    Duration failure_interval{};  ///< Mean time between a worker's own failures; zero is never.
    double crash_at_start = 0;
    double start_error = 0;
    Duration consequence_max{};  ///< From a peer's death to a worker's own, at most.
    double hang = 0;             ///< Chance that a worker hangs instead when a peer dies.
    Duration drain_max{};        ///< From SIGTERM to the worker's end.
    double ignores_term = 0;

    Duration attach_max{};  ///< From a process's start to its Hello.
    Duration
        suspension_max{};  ///< From the word that a round is over until a worker has suspended.
    double never_suspends = 0;  ///< Chance that it does not.
    Duration own_work{};    ///< Zero, or how long some do not hear it, being at work of their own.
    bool attaches = false;  ///< Workers that end with their round have the SDK, too.
    bool housed = false;    ///< A launcher serves the rendezvous and keeps a journal of it.
    double dies_of_peers = 0;  ///< Chance that an elastic worker dies when a peer does.
    Duration apply_max{};      ///< From a vote until a rank has applied the step.
    Duration hang_limit{};     ///< For which a group may stand still.

    [[nodiscard]] std::uint32_t daemons() const noexcept {
        return durability == Durability::replicated ? 2 : 1;
    }

    [[nodiscard]] static Plan from_seed(std::uint64_t seed);
    /// Same hosts and jobs, but nothing goes wrong any more.
    [[nodiscard]] Plan calm() const;
};

/// One job of a run; a run starts another one when a job has ended.
struct JobPlan {
    rendezvous::JobPolicy policy;
    std::vector<std::uint32_t> workers;               ///< By host.
    std::vector<std::optional<std::uint32_t>> slots;  ///< By host.
    Duration join_timeout{};
    Duration start_spread{};  ///< All hosts start within this.
    bool elastic = false;     ///< The workers keep their processes when rounds change.
    Duration step_time{};     ///< Of their training.
    /// The launcher of host 0 serves the rendezvous, which lives with that process; what was kept
    /// of it the next one takes up.
    bool hosted = false;

    /// `second` is for what was added later, so that old seeds keep their stories.
    [[nodiscard]] static JobPlan draw(Random& random, Random& second, const Plan& plan);
};

/// Uniform in [low, high].
[[nodiscard]] Duration between(Random& random, Duration low, Duration high);
/// Exponentially distributed, cut off at eight times the mean.
[[nodiscard]] Duration exponential(Random& random, Duration mean);

}  // namespace regroup::simulation
