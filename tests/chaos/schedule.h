// SPDX-License-Identifier: Apache-2.0
//
// The faults of a run, with their times and durations: a function of the seed.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace regroup::chaos {

using std::chrono::milliseconds;

enum class FaultKind : std::uint8_t {
    kill_worker,          ///< SIGKILL to one worker, which may be starting, running or ending.
    kill_agent,           ///< SIGKILL to a node's agent; the node is restarted afterwards.
    kill_warden,          ///< The same for the agent's warden.
    kill_node,            ///< SIGKILL to all processes of a node at once, as a power cut.
    drain_node,           ///< SIGTERM to a node's launcher, as a scheduler's preemption.
    drain_by_word,        ///< `regroup drain` of a node, by an operator.
    stop_worker,          ///< SIGSTOP, and SIGCONT afterwards.
    stop_agent,           ///< The same for an agent.
    kill_daemon,          ///< SIGKILL to the daemon; it is restarted afterwards.
    stop_daemon,          ///< SIGSTOP, and SIGCONT afterwards.
    cut_link,             ///< A node's cable is pulled.
    lossy_link,           ///< A node's cable drops `strength` per cent of the packets, both ways.
    deaf_node,            ///< One-way partition: a node hears nothing.
    mute_node,            ///< One-way partition: no other node hears it.
    part_pair,            ///< Two nodes cannot reach each other; the daemon can reach both.
    reset_pair,           ///< Every packet between two nodes is answered by a reset.
    slow_line,            ///< The slow node's TCP connections have `strength` ms more latency.
    jump_clock,           ///< A node's wall clock is `strength` minutes off.
    jump_daemon_clock,    ///< The same for the daemon's wall clock.
    fill_disk,            ///< A node's run directory is full.
    fill_daemon_disk,     ///< The daemon's state directory is full.
    kill_standby_worker,  ///< SIGKILL to a worker that a standby has started ahead.
    kill_taker,    ///< SIGKILL to the agent of the standby that takes the place of a lost node.
    kill_workers,  ///< SIGKILL to all workers of a node at once.
};
inline constexpr std::size_t kFaultKinds = 24;
[[nodiscard]] std::string_view to_string(FaultKind kind) noexcept;
/// True if the fault hits a node, not the daemon.
[[nodiscard]] bool hits_node(FaultKind kind) noexcept;
/// True if the launcher of its node ends because of it.
[[nodiscard]] bool ends_node(FaultKind kind) noexcept;
/// True if it hits a node that is a standby at that time, which the schedule cannot know.
[[nodiscard]] bool aims_at_standby(FaultKind kind) noexcept;

struct Fault {
    static constexpr std::uint32_t kStandby = 0xffff'ffff;  ///< As `node`: see `aims_at_standby`.

    milliseconds at{};     ///< From the beginning.
    milliseconds lasts{};  ///< Until it is healed or restarted; zero: there is nothing to heal.
    FaultKind kind = FaultKind::kill_worker;
    std::uint32_t node = 0;
    std::uint32_t other = 0;    ///< A worker of the node, or for a pair the other node.
    std::int64_t strength = 0;  ///< See the kinds.

    friend bool operator==(const Fault&, const Fault&) = default;
};
/// "12.340 s: one worker (1) of node c is killed", for people.
[[nodiscard]] std::string describe(const Fault& fault);

struct SchedulePlan {
    std::uint64_t seed = 1;
    milliseconds lasts = std::chrono::minutes(10);
    std::uint32_t nodes = 5;
    std::uint32_t standbys = 0;  ///< Maximum number of waiting standbys. One node always waits.
    bool ahead = false;          ///< Standbys have started their workers ahead.
    bool snapshots = false;      ///< The agents keep the training state, and not the workers.
    /// Shortest and longest time between the beginnings of faults.
    milliseconds gap_min{400};
    milliseconds gap_max{4000};
    milliseconds first{3000};           ///< Earliest time of the first fault,
    milliseconds calm{5000};            ///< and time without faults at the end.
    std::vector<FaultKind> kinds = {};  ///< Empty: all of them.
};

/// True if the plan may have faults of that kind.
[[nodiscard]] bool may_have(const SchedulePlan& plan, FaultKind kind);

/// The faults in the order of their beginnings. At each instant two nodes, or one more than there
/// are standbys, are undisturbed. All but one of these were undisturbed before, so that the
/// training state survives in memory. All other nodes, the daemon and any standby may be broken at
/// the same time. A second worker is often killed soon after a first one, while its replacement
/// starts. The slow node of `slow_line` is the last one. With
/// `snapshots`, another node is often lost at the same instant as a first one.
[[nodiscard]] std::vector<Fault> make_schedule(const SchedulePlan& plan);

/// How the workers of a round end.
enum class JobForm : std::uint8_t {
    in_place,   ///< They keep their processes.
    restarted,  ///< They end, and resume from a checkpoint.
    slow_end,   ///< The same, and they are slow to begin and to end.
    snapshots,  ///< They end, and resume from a snapshot that the agents keep.
};
[[nodiscard]] std::string_view to_string(JobForm form) noexcept;

/// The kind of job under test.
struct JobTraits {
    JobForm form = JobForm::in_place;
    std::uint32_t standbys = 0;
    // Of the form `snapshots`:
    std::uint64_t save_interval = 1;   ///< In steps.
    bool has_snapshot_folder = false;  ///< The agents write snapshots to a folder, too.
};
/// Drawn at random from the seed.
[[nodiscard]] JobTraits draw_traits(std::uint64_t seed);

/// "a", "b", ...
[[nodiscard]] std::string node_name(std::uint32_t node);

}  // namespace regroup::chaos
