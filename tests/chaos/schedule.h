// SPDX-License-Identifier: Apache-2.0
//
// What is going to be broken, when, and for how long: a function of one number.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace regroup::chaos {

using std::chrono::milliseconds;

enum class FaultKind : std::uint8_t {
    kill_worker,        ///< SIGKILL to one worker, whichever of those that start, run and end.
    kill_agent,         ///< SIGKILL to a node's agent; the node is started again afterwards.
    kill_warden,        ///< The same for the process that guards the agent.
    kill_node,          ///< SIGKILL to all processes of a node at one instant, as a power cut.
    drain_node,         ///< SIGTERM to a node's launcher, as a scheduler's preemption.
    drain_by_word,      ///< `regroup drain` of a node, by an operator.
    stop_worker,        ///< SIGSTOP, and SIGCONT afterwards.
    stop_agent,         ///< The same for an agent.
    kill_daemon,        ///< SIGKILL to the daemon; started again afterwards.
    stop_daemon,        ///< SIGSTOP, and SIGCONT afterwards.
    cut_link,           ///< A node's cable is pulled.
    lossy_link,         ///< A node's cable loses `strength` per cent of the packets, both ways.
    deaf_node,          ///< One-way partition: a node hears nothing.
    mute_node,          ///< One-way partition: nobody hears a node.
    part_pair,          ///< Two nodes cannot reach each other; the daemon can reach both.
    reset_pair,         ///< Every packet between two nodes is answered by a reset.
    slow_line,          ///< What the slow node's TCP connections carry takes `strength` ms longer.
    jump_clock,         ///< A node's wall clock is `strength` minutes off.
    jump_daemon_clock,  ///< The daemon's is.
    fill_disk,          ///< A node's run directory is full.
    fill_daemon_disk,   ///< The daemon's state directory is full.
    kill_standby_worker,  ///< SIGKILL to a worker that a standby has started ahead.
    kill_taker,  ///< SIGKILL to the agent of the standby that takes the place of a lost node.
};
inline constexpr std::size_t kFaultKinds = 23;
[[nodiscard]] std::string_view to_string(FaultKind kind) noexcept;
/// True if it is aimed at a node, not at the daemon.
[[nodiscard]] bool hits_node(FaultKind kind) noexcept;
/// True if its node's launcher ends because of it.
[[nodiscard]] bool ends_node(FaultKind kind) noexcept;
/// True if its node is not known before: it is a standby when its time has come.
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
    std::uint32_t standbys = 0;  ///< Nodes that wait, at most; one does in any case.
    bool ahead = false;          ///< These have started their workers ahead.
    /// Between the beginnings of faults, at least and at most.
    milliseconds gap_min{400};
    milliseconds gap_max{4000};
    milliseconds first{3000};           ///< When the first may come,
    milliseconds calm{5000};            ///< and for how long before the end none begins or lasts.
    std::vector<FaultKind> kinds = {};  ///< Empty: all of them.
};

/// True if the plan may have faults of that kind.
[[nodiscard]] bool may_have(const SchedulePlan& plan, FaultKind kind);

/// The faults in the order of their beginnings. At each instant two nodes, or one more than there
/// are standbys, are left in peace, of which all but one were left in peace before as well, so that
/// the training state survives in somebody's memory; all others, and the daemon, may be broken at
/// once, and whoever is a standby. Of two workers that are killed the second often follows soon,
/// when those that take the first one's place are starting. The slow node of `slow_line` is the
/// last one.
[[nodiscard]] std::vector<Fault> make_schedule(const SchedulePlan& plan);

/// What becomes of the workers of a round that ends.
enum class JobForm : std::uint8_t {
    in_place,   ///< They keep their processes.
    restarted,  ///< They end, and resume from a checkpoint.
    slow_end,   ///< The same, and they take their time to begin and to end.
};
[[nodiscard]] std::string_view to_string(JobForm form) noexcept;

/// What kind of job is broken.
struct JobTraits {
    JobForm form = JobForm::in_place;
    std::uint32_t standbys = 0;
};
/// By chance, which is the same for the same seed.
[[nodiscard]] JobTraits draw_traits(std::uint64_t seed);

/// "a", "b", ...
[[nodiscard]] std::string node_name(std::uint32_t node);

}  // namespace regroup::chaos
