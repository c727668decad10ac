// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <variant>

#include "agent/core/agent_events.h"
#include "agent/core/workers.h"
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
    /// This process serves the rendezvous, on which other nodes depend: it ends when the job is
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
/// alive
///   and not suspended.
/// - A fenced round is never begun afterwards.
/// - SIGKILL follows a request to stop after `shutdown_timeout` at the latest; for workers that
/// save
///   their state and leave, after their time for that.
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
/// The workers: see WorkerState. The next order for a worker is a function of its state and of the
/// target for all workers: see next_order(). Leaving the job: see Leave.
class AgentCore {
   public:
    AgentCore(AgentConfig config, Instant now);

    [[nodiscard]] AgentEffects step(Instant now, const AgentEvent& event);
    [[nodiscard]] AgentEffects advance(Instant now);
    [[nodiscard]] Instant next_deadline() const;

    [[nodiscard]] const rendezvous::NodeReport& report() const noexcept { return report_; }
    /// The assignment of the last round that began.
    [[nodiscard]] const Assignment& assignment() const noexcept { return round_.assignment; }
    /// True if a worker is alive, in any state.
    [[nodiscard]] bool has_workers() const { return workers_.any_alive(); }
    /// The daemon has refused the node, and the node does not leave for that: it tries again, as
    /// after a lost connection.
    [[nodiscard]] bool waits_out(const rendezvous::Refused& refused) const;
    /// True if the worker is alive and waits for a round.
    [[nodiscard]] bool is_suspended(std::uint32_t local_rank) const;
    /// The failure that the exit counts as, or nothing. Call before the exit is acted on. An
    /// elastic worker that ends with success in the middle of a round, without having to leave, has
    /// failed.
    [[nodiscard]] std::optional<WorkerFailure> failure_in(const WorkerExited& exited) const;
    /// True if this node loses nothing when its process starts a daemon in place of one that is
    /// gone. A daemon without memory ends the round of its predecessor. So the workers must be out
    /// of it, or have lost a peer, perhaps with that daemon, and must not have finished.
    /// `remembers`: the new daemon reads the journal of its predecessor.
    [[nodiscard]] bool may_serve_rendezvous(bool remembers) const;
    /// The part that this node has in the job.
    enum class Part : std::uint8_t {
        none,     ///< It waits for a place, or for the daemon.
        member,   ///< It is in a round, or between two rounds.
        standby,  ///< It waits for the place of another node.
        leaving,  ///< It is about to end.
    };
    [[nodiscard]] Part part() const;
    /// True if the agent has decided to end.
    [[nodiscard]] bool leaving() const noexcept { return leave_.quit.has_value(); }
    [[nodiscard]] bool done() const noexcept { return leave_.stage == Leave::Stage::done; }
    /// The time at which the agent gives up without a daemon or a round. Instant::max(): no limit.
    [[nodiscard]] Instant give_up_at() const noexcept { return link_.give_up_at; }
    /// True if a request to quit would begin a drain now.
    [[nodiscard]] bool would_drain() const;
    /// True if a live worker has taken part in a round.
    [[nodiscard]] bool holds_state() const { return workers_.any_holds_state(); }
    /// The workers that this node waits for, since their round is over or the node leaves.
    struct Parting {
        std::uint32_t at_boundary = 0;     ///< They save and end at the next step boundary.
        std::uint32_t suspending = 0;      ///< They leave their round.
        std::uint32_t saving = 0;          ///< They save their state and end.
        std::uint32_t ending = 0;          ///< They end.
        Instant kill_at = Instant::max();  ///< SIGKILL follows.
    };
    [[nodiscard]] Parting parting() const;
    /// True if only the check of the node's health keeps it from the next round.
    [[nodiscard]] bool awaits_check() const { return workers_.all_out() && !is_ready(); }
    /// True if a signal asked the node to quit, and its workers have yet to save their state.
    [[nodiscard]] bool draining() const noexcept { return leave_.signal != 0 && !leaving(); }

   private:
    /// The connection to the daemon.
    struct Link {
        bool up = false;
        bool queued = false;  ///< The node has a place in the queue for a round.
        Instant heard_at{};
        Instant heartbeat_at = Instant::max();
        Instant give_up_at = Instant::max();
        /// The last answer of the daemon: it does not take this node in now.
        std::optional<rendezvous::Refusal> refusal{};
    };

    /// Facts about the present round that are not in the report. Replaced when a round begins.
    struct Round {
        Assignment assignment;
        Instant ended_at = Instant::max();  ///< Time of the first sign of its end.
        bool pausing = false;               ///< Its workers suspend at a step boundary.
        /// The report of rank 0. Sent again on each new connection until the daemon answers.
        std::optional<rendezvous::Resumed> resumed{};
        Instant resumed_at{};
        rendezvous::SaveStacks stacks_wanted{};  ///< The last alarm. Number 0: none.
        std::uint32_t stacks_being_saved = 0;    ///< Their alarm, or 0.
        enum class Check : std::uint8_t { none, awaited, done };
        Check check = Check::none;  ///< Of the health of this node after a failure.
        Instant check_until{};
    };

    /// The time that workers have to leave their round, or to end. Replaced when they have.
    struct Grace {
        Instant kill_at = Instant::max();
        bool in_user_code = false;           ///< They got more time because they are in user code.
        Instant tell_at = Instant::max();    ///< When to print that.
        Instant resist_at = Instant::max();  ///< Workers alive at this time survive SIGKILL.
    };

    /// Workers that are started ahead of a round at the daemon's request.
    struct Ahead {
        bool wanted = false;
        /// The time of the next start of workers that died, and the present delay.
        Instant again_at = Instant::max();
        Duration delay{};
        Instant started_at = Instant::min();
    };

    /// Leaving the job: the request of this node, and the answer of the daemon.
    ///
    ///     stage        workers are to    goes on
    ///     member       train             a signal -> asked; Prepare{leave} -> at_boundary, or
    ///                                    saving if they are suspended
    ///     asked        train             Prepare{leave}, as above; by itself after half of the
    ///                                    time, or when the daemon has been away for a while
    ///     at_boundary  train up to a     all have saved -> ending; most of the time is over ->
    ///                  step boundary,    saving; the round ended before -> asked
    ///                  save and end
    ///     saving       save and end      all have ended -> ending; the time is over -> ending
    ///     ending       end               another signal -> hurried; the last worker is gone
    ///                                    -> done
    ///     hurried      end at once       the last worker is gone -> done
    ///
    /// A verdict or a second signal leads to `ending` at once. If the node has to leave, a verdict
    /// leads to `saving`.
    struct Leave {
        enum class Stage : std::uint8_t {
            member,
            asked,
            at_boundary,
            saving,
            ending,
            hurried,
            done
        };
        Stage stage = Stage::member;
        int signal = 0;                     ///< The signal that asked for it; 0: the daemon asked.
        Instant asked_at = Instant::min();  ///< Time of the first signal.
        Instant until = Instant::max();     ///< Deadline for saving the state.
        Cause why{};
        std::uint32_t saved = 0;   ///< Workers that have ended with success meanwhile.
        std::uint32_t failed = 0;  ///< Workers that failed to save.
        std::optional<Quit> quit{};
    };

    /// The node joins again once all workers are out of their round.
    struct Rejoin {};

    void on(Instant now, const LinkUp& event);
    void on(Instant now, const LinkDown& event);
    void on(Instant now, const Received& event);
    void on(Instant now, const WorkerExited& event);
    void on(Instant now, const WorkerEnding& event);
    void on(Instant now, const WorkerAttached& event);
    void on(Instant now, const WorkerSuspended& event);
    void on(Instant now, const WorkerResumed& event);
    void on(Instant now, const WorkerLostPeer& event);
    void on(Instant now, const StepsCommitted& event);
    void on(Instant now, const HangSuspected& event);
    void on(Instant now, const WorkersAtWork& event);
    void on(Instant now, const StacksSaved& event);
    void on(Instant now, const StoreOffered& event);
    void on(Instant now, const RendezvousServed& event);
    void on(Instant now, const NodeChecked& event);
    void on(Instant now, const QuitRequested& event);

    void handle(Instant now, const rendezvous::Assign& message);
    void handle(Instant now, const rendezvous::Stop& message);
    void handle(Instant now, const rendezvous::Prepare& message);
    void handle(Instant now, const rendezvous::SaveStacks& message);
    void handle(Instant now, const rendezvous::EndWorker& message);
    void handle(Instant now, const rendezvous::Fenced& message);
    void handle(Instant now, const rendezvous::Dismissed& message);
    void handle(Instant now, const rendezvous::Waiting& message);
    void handle(Instant now, const rendezvous::Refused& message);
    void handle(Instant now, const rendezvous::Recovered& message);
    void handle(Instant now, const rendezvous::Closed& message);
    /// Ignores Alive, which has no content, and Operated and Elsewhere, which are not for agents.
    template <class Message>
    void handle(Instant /*now*/, const Message& /*message*/) {}

    // ---- The daemon: agent_core.cc.
    void send_join(Instant now);
    void tell(Instant now);  ///< Sends the report, or that the node leaves.
    void update_patience(Instant now);
    void update_recheck(Instant now);
    void give_up(Instant now);  ///< --join-timeout is over.
    void quit_unhealthy(Instant now);

    // ---- Rounds: agent_rounds.cc.
    [[nodiscard]] bool is_in_round() const;
    /// True if nothing of the round is left here, so that the next one may begin.
    [[nodiscard]] bool is_ready() const;
    [[nodiscard]] bool names_spent_store(const Assignment& assignment) const;
    void begin_round(Instant now, const Assignment& assignment);
    void begin_stopping(Instant now, const Cause& cause);
    /// `round` and all earlier rounds will never begin on this node.
    void abandon(RoundId round);
    /// The same, because the store of the round is not available.
    void refuse(RoundId round);
    /// Makes the report one about `round`, without facts about the round before.
    void report_on(RoundId round);
    /// Ends the round on this node if all workers are out of it.
    void settle(Instant now);
    void begin_next(Instant now);

    // ---- Workers: agent_workers.cc.
    /// Gives each worker its next order. `cause`: the cause of the round's end, if it ends now.
    void order_workers(const Cause* cause = nullptr);
    [[nodiscard]] Wanted wanted() const;
    void lose_member(Instant now, const Worker& lost, const WorkerExited& exited,
                     const std::optional<WorkerFailure>& failure);
    /// The worker of a round has failed.
    void judge(Instant now, const Worker& lost, const WorkerFailure& failure);
    void note_finished(Instant now, const Worker& lost, const WorkerExited& exited);
    void lose_waiting(Instant now, const Worker& lost);
    [[nodiscard]] bool was_stopped_by_us(const Worker& worker, const WorkerFailure& failure) const;
    void check_node(Instant now);
    void kill_workers(Instant now);
    void end_for_unkillable(Instant now);
    [[nodiscard]] bool keeps_ahead() const;
    void prestart(Instant now);
    void prestart_later(Instant now);
    void replace_lost(Instant now, const Worker& lost);
    /// True if this node knows no reason why the job should end with this round.
    [[nodiscard]] bool expects_another_round() const;

    // ---- Leaving: agent_leaving.cc.
    /// Lets the workers save and end, at a step boundary or at once.
    void begin_leaving(Instant now, Leave::Stage stage, const Cause& why);
    /// The end of the time for the present stage.
    [[nodiscard]] Instant leave_deadline() const;
    void go_on_leaving(Instant now);
    /// Call when all workers are out of a round. False if the node takes part in the next one.
    [[nodiscard]] bool leave_between_rounds(Instant now);
    /// Call when no worker is left of a node that saved its state.
    void conclude_saving(Instant now);
    void quit(Instant now, Quit how);
    void quit_drained(Instant now);
    /// Ends by the signal that asked for the leave, if there was one.
    void quit_unsaved(Instant now, QuitReason reason);
    void finish();
    [[nodiscard]] Cause why_leaving() const;

    // ---- Reports: agent_reports.cc.
    void update_elastic(Instant now);
    void update_at_work(Instant now);
    void save_stacks();

    AgentConfig config_;
    Instant began_;
    rendezvous::NodeReport report_;
    Workers workers_;
    Link link_;
    Round round_;
    /// The daemon's message about what follows when all workers are out of the round, if there is
    /// one.
    std::variant<std::monostate, Rejoin, Assignment> next_;
    Grace grace_;
    Ahead ahead_;
    Instant recheck_at_ = Instant::max();  ///< Of a node that is queued for a round.
    Leave leave_;
    std::string fault_;  ///< Why this node may not take part; empty: it may.
    /// The last printed recoveries, to ignore repetitions.
    std::deque<rendezvous::Incident> told_;
    AgentEffects effects_;
};

}  // namespace regroup::agent
