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

/// One host as an all-seeing observer knows it.
struct HostView {
    const agent::AgentCore* agent = nullptr;  ///< Null while no agent runs there.
    rendezvous::NodeId node;                  ///< Of the agent that runs or ran last.
    /// Since when nothing has been in the way between agent and daemon: no cut, no pause, no slow
    /// network, both up.
    /// Instant::max() while something is.
    Instant undisturbed_since = Instant::max();
    /// Since when the agent has been running without being paused. Instant::max() while it is.
    Instant awake_since = Instant::max();
    std::size_t workers_alive = 0;
};

/// The workers that train together in one round. Daemons that remember nothing may use a number
/// twice, so that groups have one of their own, which grows.
struct GroupName {
    std::uint64_t id = 0;
    rendezvous::RoundId round = rendezvous::RoundId::none;
};

/// One rank of a group when it forms.
struct MemberView {
    std::uint32_t host = 0;
    std::uint64_t life = 0;  ///< Names the process.
    std::uint64_t step = 0;  ///< That it had committed before.
};

/// One worker that does nothing any more.
struct HungView {
    std::uint32_t host = 0;
    std::uint32_t local_rank = 0;
    std::uint64_t life = 0;
    std::uint32_t rank = 0;
    rendezvous::RoundId round = rendezvous::RoundId::none;
};

/// A connection between two live workers that breaks.
struct SeveredView {
    GroupName group;
    std::vector<std::uint64_t> members;  ///< Processes of the group.
    std::uint32_t rank = 0;
    std::uint32_t peer = 0;
    Instant noticed{};  ///< By one of the two.
};

/// The whole of a run at one moment.
struct View {
    const rendezvous::RendezvousCore* rendezvous = nullptr;  ///< Null: daemon down or still empty.
    /// Since when the daemon has been up and not paused. Instant::max() while it is not.
    Instant daemon_awake_since = Instant::max();
    std::vector<HostView> hosts;
    /// The daemon died after it had closed the job, and remembers nothing: who has not heard the
    /// verdict waits in vain, until its join timeout.
    bool verdict_was_forgotten = false;
    std::size_t in_flight = 0;  ///< Messages in the network.
    Duration network_limit{};   ///< No message takes longer than this one way, save by a fault.
    Duration step_limit{};      ///< No step takes longer of a round with which nothing is wrong.
    Duration hang_limit{};      ///< After that, a group that stands still is said to hang.
    Duration work_limit{};      ///< No worker is at work of its own for longer.
    bool reliable = true;  ///< Messages over a living connection are neither lost nor mixed up.
};

/// Watches one invariant. Is told of everything that happens and keeps what it needs; the first
/// violation is kept as one sentence. The default for everything is not to care.
class Checker {
   public:
    using RoundId = rendezvous::RoundId;

    virtual ~Checker() = default;

    [[nodiscard]] const std::optional<std::string>& violation() const noexcept {
        return violation_;
    }

    /// A new job begins: what was true of the old one is void. Nobody of it is left.
    virtual void on_job(Instant /*now*/, const rendezvous::JobPolicy& /*policy*/) {}
    /// The daemon starts, remembering nothing.
    virtual void on_daemon_start(Instant /*now*/) {}
    /// The daemon that was in charge is not any more, but what it has recorded is kept.
    virtual void on_daemon_gone(Instant /*now*/) {}
    /// A daemon goes on from what was recorded.
    virtual void on_daemon_restored(Instant /*now*/, const rendezvous::RendezvousCore& /*core*/) {}
    /// What a daemon is about to send, and what the records alone make of it.
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
    /// The agent's process is gone, by itself or by force.
    virtual void on_agent_end(Instant /*now*/, std::uint32_t /*host*/) {}
    /// A worker begins to take part in a round: launched for it, or given a place in it.
    virtual void on_worker_start(Instant /*now*/, std::uint32_t /*host*/, RoundId /*round*/) {}
    virtual void on_worker_end(Instant /*now*/, std::uint32_t /*host*/, RoundId /*round*/,
                               bool /*own_fault*/) {}
    /// A worker has left `round` and keeps its process.
    virtual void on_worker_suspended(Instant /*now*/, std::uint32_t /*host*/, RoundId /*round*/) {}
    /// A process is gone, in a round or not.
    virtual void on_process_end(Instant /*now*/, std::uint32_t /*host*/, std::uint64_t /*life*/,
                                bool /*success*/) {}
    /// All ranks of `round` are there, and have the state of who had come furthest.
    virtual void on_group_formed(Instant /*now*/, const GroupName& /*group*/,
                                 std::uint64_t /*step*/,
                                 const std::vector<MemberView>& /*members*/) {}
    /// All ranks have agreed that the next step counts; and whether they suspend after it.
    virtual void on_vote(Instant /*now*/, const GroupName& /*group*/, bool /*suspend*/) {}
    /// And that it was the last one.
    virtual void on_finished(Instant /*now*/, const GroupName& /*group*/) {}
    /// A process has heard so: from here on it takes part in no round.
    virtual void on_process_finished(Instant /*now*/, std::uint64_t /*life*/) {}
    virtual void on_hung(Instant /*now*/, const HungView& /*hung*/) {}
    /// Who cares for nothing more of it: a trouble like any.
    virtual void on_severed(Instant now, const SeveredView& severed) {
        on_trouble(now, severed.noticed);
    }
    /// The group cannot form, and all its ranks have waited for that for as long as they may.
    virtual void on_stuck(Instant now, const GroupName& /*group*/) { on_trouble(now, now); }
    /// A rank has applied it.
    virtual void on_commit(Instant /*now*/, std::uint32_t /*host*/, std::uint64_t /*life*/,
                           const GroupName& /*group*/, std::uint64_t /*step*/) {}
    /// A rank that leaves has saved its state.
    virtual void on_saved(Instant /*now*/, std::uint32_t /*host*/, std::uint64_t /*life*/,
                          const GroupName& /*group*/, std::uint64_t /*step*/) {}
    /// A rank begins to save its state, and to leave, between two rounds.
    virtual void on_left(Instant /*now*/, std::uint32_t /*host*/, std::uint64_t /*life*/,
                         std::uint64_t /*step*/) {}
    /// A rank was told to abandon its round before a step boundary; `trained`: in the midst of a
    /// step.
    virtual void on_aborted(Instant /*now*/, std::uint32_t /*host*/, std::uint64_t /*life*/,
                            RoundId /*round*/, bool /*trained*/) {}
    /// Something goes wrong now, other than with a daemon, and may have consequences until then.
    virtual void on_trouble(Instant /*now*/, Instant /*until*/) {}
    /// Every half second.
    virtual void on_tick(Instant /*now*/, const View& /*view*/) {}
    /// Faults have stopped so long ago that everything must have come right.
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

/// Nothing was wrong with the round that is to end or to change for it; or it is given up for a
/// node that holds a later state.
[[nodiscard]] inline bool is_planned(const rendezvous::Cause& cause) {
    using rendezvous::Cause;
    return cause.as<Cause::Joined>() != nullptr || cause.as<Cause::Leaving>() != nullptr ||
           cause.as<Cause::JobDrain>() != nullptr || cause.as<Cause::BegunBehind>() != nullptr;
}

/// In a round ranks are dense, unique and node-contiguous; every member is told the same world,
/// master and reason, and never anything else later.
std::unique_ptr<Checker> make_ranks_checker();
/// Round numbers only grow: for the daemon within its life and beyond what it was told at joins,
/// for an agent always.
std::unique_ptr<Checker> make_round_order_checker();
/// A round that an agent was fenced from, or told to stop, is never launched by it afterwards.
std::unique_ptr<Checker> make_fencing_checker();
/// No worker is launched on a host while one of another round is alive there.
std::unique_ptr<Checker> make_one_round_checker();
/// A closed job stays closed, with one verdict, and says nothing else.
std::unique_ptr<Checker> make_closed_checker();
/// Restarts are charged only for workers that failed by themselves, and never beyond the budget.
std::unique_ptr<Checker> make_budget_checker();
/// Nobody whom the daemon can reach runs a round that is over for longer than a heartbeat, the time
/// to notice a dead connection and to open another one, and a margin.
std::unique_ptr<Checker> make_stale_round_checker();
/// An agent that ends leaves no worker behind, unless it resisted SIGKILL.
std::unique_ptr<Checker> make_orphan_checker();
/// SIGKILL follows SIGTERM after the shutdown timeout at the latest.
std::unique_ptr<Checker> make_force_checker();
/// The failure that a node reports began the end of its round, as far as the node can know; it is
/// never an echo of its own stopping.
std::unique_ptr<Checker> make_first_failure_checker();
/// The master's port is a socket that group rank 0 holds open for this very round.
std::unique_ptr<Checker> make_master_checker();
/// The daemon forgets nodes that are gone, and the network does not fill up.
std::unique_ptr<Checker> make_memory_checker();
/// Nodes and daemon never answer each other's answers without an end.
std::unique_ptr<Checker> make_storm_checker();
/// Once faults have stopped, the job runs on all the nodes that it can use, or is closed for all.
std::unique_ptr<Checker> make_progress_checker();
/// Whatever a daemon decides follows from the records alone.
std::unique_ptr<Checker> make_replay_checker();
/// No round ends for no other reason than that a daemon died and another one goes on.
std::unique_ptr<Checker> make_return_checker();
/// Nor does an agent disturb its workers only because the daemon is away.
std::unique_ptr<Checker> make_headless_checker();
/// Whoever is told of an incident is told what can have been; and of each way to a round that
/// trains somebody is told.
std::unique_ptr<Checker> make_incident_checker();
/// Steps are committed one after the other, by all ranks of a round or by none; a round goes on
/// from the furthest state that was there, and none votes that shares a rank with a later one.
std::unique_ptr<Checker> make_steps_checker();
/// Who has suspended keeps its process.
std::unique_ptr<Checker> make_keep_checker();
/// A planned change interrupts nobody in a step, unless something goes wrong.
std::unique_ptr<Checker> make_prepare_checker();
/// A node that says that its state is saved has saved it.
std::unique_ptr<Checker> make_drain_checker();
/// A node that was left behind by later rounds saves nothing.
std::unique_ptr<Checker> make_leave_checker();
/// A elastic round with which nothing is wrong commits steps, whatever becomes of daemons.
std::unique_ptr<Checker> make_steady_checker();
/// A hang ends in time, and at the cost of the worker that hung.
std::unique_ptr<Checker> make_hang_checker();
/// A connection that breaks between live workers ends its round in time, and costs no more.
std::unique_ptr<Checker> make_link_checker();
/// Standbys have their workers started, and take the ranks of lost nodes at once.
std::unique_ptr<Checker> make_standby_checker();
/// A drained node goes; the others keep their step and repeat none.
std::unique_ptr<Checker> make_boundary_checker();

[[nodiscard]] Checkers make_all_checkers();

}  // namespace regroup::simulation
