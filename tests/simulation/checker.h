// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/core/agent_core.h"
#include "rendezvous/core/rendezvous_core.h"

namespace regroup::simulation {

/// The complete state of one host.
struct HostView {
    const agent::AgentCore* agent = nullptr;  ///< Null while no agent runs there.
    rendezvous::NodeId node;                  ///< Of the current or last agent.
    /// Since when agent and daemon have both been up and reached each other undisturbed: no cut, no
    /// pause, no slow network. Instant::max() while they are disturbed.
    Instant undisturbed_since = Instant::max();
    /// Since when the agent has run without a pause. Instant::max() while it is paused.
    Instant awake_since = Instant::max();
    std::size_t workers_alive = 0;
};

/// The workers that train together in one round. A daemon without durable state may use a round
/// number twice, so every group also has its own growing number.
struct GroupName {
    std::uint64_t id = 0;
    rendezvous::RoundId round = rendezvous::RoundId::none;
};

/// One rank of a forming group.
struct MemberView {
    std::uint32_t host = 0;
    std::uint64_t life = 0;  ///< Identifies the process.
    std::uint64_t step = 0;  ///< The last step that it had committed.
};

/// One worker that hangs.
struct HungView {
    std::uint32_t host = 0;
    std::uint32_t local_rank = 0;
    std::uint64_t life = 0;
    std::uint32_t rank = 0;
    rendezvous::RoundId round = rendezvous::RoundId::none;
};

/// A broken connection between two live workers.
struct SeveredView {
    GroupName group;
    std::vector<std::uint64_t> members;  ///< Processes of the group.
    std::uint32_t rank = 0;
    std::uint32_t peer = 0;
    Instant noticed{};  ///< When one of the two ends noticed it.
};

/// The state of the whole run at one moment.
struct View {
    /// Null if the daemon is down or has no job.
    const rendezvous::RendezvousCore* rendezvous = nullptr;
    /// Since when the daemon has been up and not paused. Instant::max() while it is down or paused.
    Instant daemon_awake_since = Instant::max();
    std::vector<HostView> hosts;
    /// The daemon closed the job, died and has no durable state. A node that has not heard the
    /// verdict waits until its join timeout.
    bool verdict_was_forgotten = false;
    std::size_t in_flight = 0;  ///< Messages in the network.
    Duration network_limit{};   ///< The longest one-way delay without a fault.
    Duration step_limit{};      ///< The longest step of a healthy round.
    Duration hang_limit{};      ///< A group that stands still for longer is reported as hanging.
    Duration work_limit{};      ///< The longest time that a worker spends in user code.
    bool reliable = true;       ///< A live connection neither loses nor reorders messages.
};

/// Checks one invariant. It receives every event of the run and stores the first violation as one
/// sentence. The default handlers do nothing.
class Checker {
   public:
    using RoundId = rendezvous::RoundId;

    virtual ~Checker() = default;

    [[nodiscard]] const std::optional<std::string>& violation() const noexcept {
        return violation_;
    }

    /// A new job begins. The old one has ended on all nodes.
    virtual void on_job(Instant /*now*/, const rendezvous::JobPolicy& /*policy*/) {}
    /// The daemon starts without any state.
    virtual void on_daemon_start(Instant /*now*/) {}
    /// The leading daemon is gone. Its records are kept.
    virtual void on_daemon_gone(Instant /*now*/) {}
    /// A daemon has restored its state from the records.
    virtual void on_daemon_restored(Instant /*now*/, const rendezvous::RendezvousCore& /*core*/) {}
    /// The messages that a daemon is about to send, and those that the records alone lead to.
    virtual void on_replayed(Instant /*now*/, const rendezvous::Effects& /*sent*/,
                             const rendezvous::Effects& /*replayed*/) {}
    virtual void on_daemon_event(Instant /*now*/, const rendezvous::Event& /*event*/) {}
    virtual void on_daemon_effects(Instant /*now*/, const rendezvous::RendezvousCore& /*core*/,
                                   const rendezvous::Effects& /*effects*/) {}
    virtual void on_agent_start(Instant /*now*/, std::uint32_t /*host*/) {}
    virtual void on_agent_event(Instant /*now*/, std::uint32_t /*host*/,
                                const agent::AgentEvent& /*event*/) {}
    virtual void on_agent_effect(Instant /*now*/, std::uint32_t /*host*/,
                                 const agent::AgentCore& /*core*/,
                                 const agent::AgentEffect& /*effect*/) {}
    /// The agent's process has ended, by itself or killed.
    virtual void on_agent_end(Instant /*now*/, std::uint32_t /*host*/) {}
    /// A worker enters a round: launched for it, or assigned to it.
    virtual void on_worker_start(Instant /*now*/, std::uint32_t /*host*/, RoundId /*round*/) {}
    virtual void on_worker_end(Instant /*now*/, std::uint32_t /*host*/, RoundId /*round*/,
                               bool /*own_fault*/) {}
    /// A worker has left `round` and keeps its process.
    virtual void on_worker_suspended(Instant /*now*/, std::uint32_t /*host*/, RoundId /*round*/) {}
    /// A process has ended, in a round or not.
    virtual void on_process_end(Instant /*now*/, std::uint32_t /*host*/, std::uint64_t /*life*/,
                                bool /*success*/) {}
    /// All ranks of the round are connected and have the most advanced state.
    virtual void on_group_formed(Instant /*now*/, const GroupName& /*group*/,
                                 std::uint64_t /*step*/,
                                 const std::vector<MemberView>& /*members*/) {}
    /// All ranks have voted to commit the next step. `suspend`: they suspend after it.
    virtual void on_vote(Instant /*now*/, const GroupName& /*group*/, bool /*suspend*/) {}
    /// All ranks have voted that the last step is done.
    virtual void on_finished(Instant /*now*/, const GroupName& /*group*/) {}
    /// A process has learned that training is finished. It takes part in no further round.
    virtual void on_process_finished(Instant /*now*/, std::uint64_t /*life*/) {}
    virtual void on_hung(Instant /*now*/, const HungView& /*hung*/) {}
    /// By default a fault like any other.
    virtual void on_severed(Instant now, const SeveredView& severed) {
        on_trouble(now, severed.noticed);
    }
    /// The group cannot form, and the hang limit of all its ranks is over.
    virtual void on_stuck(Instant now, const GroupName& /*group*/) { on_trouble(now, now); }
    /// A rank has applied a committed step.
    virtual void on_commit(Instant /*now*/, std::uint32_t /*host*/, std::uint64_t /*life*/,
                           const GroupName& /*group*/, std::uint64_t /*step*/) {}
    /// A leaving rank has saved its state.
    virtual void on_saved(Instant /*now*/, std::uint32_t /*host*/, std::uint64_t /*life*/,
                          const GroupName& /*group*/, std::uint64_t /*step*/) {}
    /// A rank begins to save its state in order to leave, between two rounds.
    virtual void on_left(Instant /*now*/, std::uint32_t /*host*/, std::uint64_t /*life*/,
                         std::uint64_t /*step*/) {}
    /// A rank was told to abandon its round before a step boundary. `trained`: during a step.
    virtual void on_aborted(Instant /*now*/, std::uint32_t /*host*/, std::uint64_t /*life*/,
                            RoundId /*round*/, bool /*trained*/) {}
    /// A fault outside of the daemons occurs now and may have effects until `until`.
    virtual void on_trouble(Instant /*now*/, Instant /*until*/) {}
    /// Every half second.
    virtual void on_tick(Instant /*now*/, const View& /*view*/) {}
    /// Faults stopped so long ago that the job must have recovered.
    virtual void on_calm(Instant /*now*/, const View& /*view*/) {}

   protected:
    void violated(std::string sentence) {
        if (!violation_) {
            violation_ = std::move(sentence);
        }
    }

   private:
    std::optional<std::string> violation_;
};

using Checkers = std::vector<std::unique_ptr<Checker>>;

[[nodiscard]] inline std::string text(rendezvous::RoundId round) {
    return std::to_string(number(round));
}

/// A cause that ends or changes a healthy round, or gives it up for a node with a later state.
[[nodiscard]] inline bool is_planned(const rendezvous::Cause& cause) {
    using rendezvous::Cause;
    return cause.as<Cause::Joined>() != nullptr || cause.as<Cause::Leaving>() != nullptr ||
           cause.as<Cause::JobDrain>() != nullptr || cause.as<Cause::BegunBehind>() != nullptr;
}

/// Ranks of a round are dense, unique and node-contiguous. Every member gets the same world, master
/// and reason, and no different ones later.
std::unique_ptr<Checker> make_ranks_checker();
/// Round numbers only grow: for a daemon within its life and beyond the rounds that joining nodes
/// report, for an agent always.
std::unique_ptr<Checker> make_round_order_checker();
/// An agent never launches a round that it was fenced from or told to stop.
std::unique_ptr<Checker> make_fencing_checker();
/// No worker is launched on a host while one of another round is alive there.
std::unique_ptr<Checker> make_one_round_checker();
/// The receiver of each message can decode it.
std::unique_ptr<Checker> make_wire_checker();
/// A closed job stays closed, with one verdict, and the daemon sends no other message.
std::unique_ptr<Checker> make_closed_checker();
/// Restarts are charged only for workers that failed by themselves, and never beyond the budget.
std::unique_ptr<Checker> make_budget_checker();
/// A node that the daemon can reach stops a stale round within a heartbeat, the time to replace a
/// dead connection, and a margin.
std::unique_ptr<Checker> make_stale_round_checker();
/// An ended agent leaves no worker behind, except one that resists SIGKILL.
std::unique_ptr<Checker> make_orphan_checker();
/// SIGKILL follows SIGTERM after the shutdown timeout at the latest.
std::unique_ptr<Checker> make_force_checker();
/// A node reports the failure that began the end of its round, as far as it can know. It never
/// reports a worker that it ended itself.
std::unique_ptr<Checker> make_first_failure_checker();
/// The master's port is a socket that group rank 0 holds open for this very round.
std::unique_ptr<Checker> make_master_checker();
/// The daemon forgets lost nodes, and the network does not fill up.
std::unique_ptr<Checker> make_memory_checker();
/// Nodes and daemon never exchange messages without end.
std::unique_ptr<Checker> make_storm_checker();
/// Once faults have stopped, the job runs on all the nodes that it can use, or is closed for all.
std::unique_ptr<Checker> make_progress_checker();
/// The records alone lead to every decision of a daemon.
std::unique_ptr<Checker> make_replay_checker();
/// No round ends only because a daemon died and another one took over.
std::unique_ptr<Checker> make_return_checker();
/// No agent disturbs its workers only because the daemon is away.
std::unique_ptr<Checker> make_headless_checker();
/// Reported recoveries have possible times, and every recovery is reported to some node.
std::unique_ptr<Checker> make_incident_checker();
/// Steps are committed in order, by all ranks of a round or by none. A round starts from the most
/// advanced state that was present. A round does not vote while one of its ranks is in a later
/// round.
std::unique_ptr<Checker> make_steps_checker();
/// A suspended worker keeps its process.
std::unique_ptr<Checker> make_keep_checker();
/// A planned change interrupts no worker in a step, unless a fault occurs.
std::unique_ptr<Checker> make_prepare_checker();
/// A node that reports its state as saved has saved it.
std::unique_ptr<Checker> make_drain_checker();
/// A node whose state is older than that of a later round saves nothing.
std::unique_ptr<Checker> make_leave_checker();
/// A healthy elastic round commits steps, with or without a daemon.
std::unique_ptr<Checker> make_steady_checker();
/// A hang ends in time, and only the hanging worker is ended.
std::unique_ptr<Checker> make_hang_checker();
/// A broken connection between live workers ends its round in time, and has no other effect.
std::unique_ptr<Checker> make_link_checker();
/// Standbys have their workers started, and take the ranks of lost nodes at once.
std::unique_ptr<Checker> make_standby_checker();
/// A drained node leaves. The others keep their step and repeat none.
std::unique_ptr<Checker> make_boundary_checker();

[[nodiscard]] Checkers make_all_checkers();

}  // namespace regroup::simulation
