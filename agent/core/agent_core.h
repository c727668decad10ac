// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "agent/core/agent_events.h"
#include "rendezvous/core/messages.h"

namespace regroup::agent {

struct AgentConfig {
    std::string job;
    rendezvous::NodeId node;
    rendezvous::JobPolicy policy;
    rendezvous::Offer offer;
    /// Longest time without an assignment or without the daemon, also while the daemon is
    /// overloaded. Then the agent gives up. It does not run while the node is queued as a standby.
    Duration join_timeout = std::chrono::minutes(10);
    /// This process runs the daemon, on which other nodes depend: it ends when the job is
    /// closed, not when its own workers have finished.
    bool stays_until_closed = false;
    /// Longest time of a check of this node's health after a failure of a worker: see CheckNode.
    /// Zero: no checks are made.
    Duration health_limit{};
    /// Longest time of the check before the node joins. The join timeout begins after the check.
    Duration first_check_limit{};
    /// The time between two checks of a node that is queued for a round. Zero: there are none.
    Duration recheck_interval{};
};

namespace core {
struct AgentState;
}

/// One node of a job, as a pure state machine: it joins, runs its assignments, reports, and stops
/// when asked. It has no socket, process, clock or thread. The agent and the simulator drive this
/// class.
///
/// A worker is *elastic* once it has attached and said that it is elastic: it does not end with its
/// round, but suspends and gets a place in the next one. All other workers end with their round,
/// and so does an elastic worker that does not suspend in time.
///
/// Invariants, which the simulator checks:
///
/// - No worker is launched in a round, or assigned to it, while a worker of an earlier round is
///   alive and not suspended.
/// - A fenced round is never begun afterwards.
/// - SIGKILL follows a request to stop after `shutdown_timeout` at the latest; for workers that
///   save their state and leave, after their time for that.
/// - The reported failure is the first one. It is never a consequence of our own stopping.
/// - The agent quits with no worker alive, unless workers survive SIGKILL.
///
/// The node (NodeState, in its report):
///
///     stopped --Assign--> running --all succeeded--> finished
///        ^                 | |  failed, Stop, Fenced, Closed, newer Assign, quit
///        |                 | +--------> stopping --+
///        +--all suspended--+                       |
///        +------------------- all gone or suspended, and the health checked after a failure
///
/// The workers: see WorkerState and next_order(). Leaving the job: see LeaveStage.
class AgentCore {
   public:
    AgentCore(AgentConfig config, Instant now);
    AgentCore(AgentCore&&) noexcept;
    AgentCore& operator=(AgentCore&&) noexcept;
    ~AgentCore();

    [[nodiscard]] AgentEffects step(Instant now, const AgentEvent& event);
    [[nodiscard]] AgentEffects advance(Instant now);
    [[nodiscard]] Instant next_deadline() const;

    [[nodiscard]] const rendezvous::NodeReport& report() const noexcept;
    /// The assignment of the last round that began.
    [[nodiscard]] const Assignment& assignment() const noexcept;
    /// True if a worker is alive, in any state.
    [[nodiscard]] bool has_workers() const;
    /// True if a live worker has taken part in a round.
    [[nodiscard]] bool holds_state() const;
    /// True if the worker is alive and waits for a round.
    [[nodiscard]] bool is_suspended(std::uint32_t local_rank) const;
    /// The workers that this node waits for, since their round is over or the node leaves.
    struct Parting {
        std::uint32_t at_boundary = 0;     ///< They save and end at the next step boundary.
        std::uint32_t suspending = 0;      ///< They leave their round.
        std::uint32_t saving = 0;          ///< They save their state and end.
        std::uint32_t ending = 0;          ///< They end.
        Instant kill_at = Instant::max();  ///< SIGKILL follows.
    };
    [[nodiscard]] Parting parting() const;
    /// The failure that the exit counts as, or nothing. Call before the exit is acted on. An
    /// elastic worker that ends with success in the middle of a round, without having to leave, has
    /// failed.
    [[nodiscard]] std::optional<WorkerFailure> failure_in(const WorkerExited& exited) const;
    /// True if only the check of the node's health keeps it from the next round.
    [[nodiscard]] bool awaits_check() const;

    /// The part that this node has in the job.
    enum class Part : std::uint8_t {
        none,     ///< It waits for a place, or for the daemon.
        member,   ///< It is in a round, or between two rounds.
        standby,  ///< It waits for the place of another node.
        leaving,  ///< It is about to end.
    };
    [[nodiscard]] Part part() const;
    /// True if a request to quit would begin a drain now.
    [[nodiscard]] bool would_drain() const;
    /// True if a signal asked the node to quit, and its workers have yet to save their state.
    [[nodiscard]] bool draining() const noexcept;
    /// True if the agent has decided to end.
    [[nodiscard]] bool leaving() const noexcept;
    [[nodiscard]] bool done() const noexcept;

    /// The time at which the agent gives up without a daemon or a round. Instant::max(): no limit.
    [[nodiscard]] Instant give_up_at() const noexcept;
    /// The daemon has refused the node, and the node does not leave for that: it tries again, as
    /// after a lost connection.
    [[nodiscard]] bool waits_out(const rendezvous::Refused& refused) const;
    /// True if this node loses nothing when its process starts a daemon in place of one that is
    /// gone. A daemon without memory ends the round of its predecessor. So the workers must be out
    /// of it, or have lost a peer, perhaps with that daemon, and must not have finished.
    /// `remembers`: the new daemon reads the journal of its predecessor.
    [[nodiscard]] bool may_serve_rendezvous(bool remembers) const;

   private:
    std::unique_ptr<core::AgentState> node_;
};

}  // namespace regroup::agent
