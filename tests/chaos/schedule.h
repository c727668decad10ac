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
    kill_worker,        ///< SIGKILL to one worker.
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
};
inline constexpr std::size_t kFaultKinds = 21;
[[nodiscard]] std::string_view to_string(FaultKind kind) noexcept;
/// True if it is aimed at a node, not at the daemon.
[[nodiscard]] bool hits_node(FaultKind kind) noexcept;
/// True if its node's launcher ends because of it.
[[nodiscard]] bool ends_node(FaultKind kind) noexcept;

struct Fault {
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
    std::uint32_t workers = 2;  ///< Of each node.
    /// Between the beginnings of faults, at least and at most.
    milliseconds gap_min{400};
    milliseconds gap_max{4000};
    milliseconds first{3000};           ///< When the first may come,
    milliseconds calm{5000};            ///< and for how long before the end none begins or lasts.
    std::vector<FaultKind> kinds = {};  ///< Empty: all of them.
};

/// The faults in the order of their beginnings. At each instant two nodes are left in peace, one of
/// which was left in peace before as well, so that the training state survives in somebody's
/// memory; all others, and the daemon, may be broken at once. The slow node of `slow_line` is the
/// last one.
[[nodiscard]] std::vector<Fault> make_schedule(const SchedulePlan& plan);

/// "a", "b", ...
[[nodiscard]] std::string node_name(std::uint32_t node);

}  // namespace regroup::chaos
