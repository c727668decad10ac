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
    /// Longest time without an assignment, or without the daemon, before the agent gives up. Does
    /// not run while the node is queued as a standby.
    Duration join_timeout = std::chrono::minutes(10);
    /// Others depend on this process, which serves the rendezvous: it goes when the job is closed,
    /// not when its own workers are done.
    bool stays_until_closed = false;
};

/// Exit codes of an agent that no worker is to blame for.
inline constexpr int kExitJobFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitNoRendezvous = 3;
inline constexpr int kExitNoProgress = 4;  ///< Round after round without one more committed step.
inline constexpr int kExitRequeue = 75;    ///< The state is saved; start the job again. EX_TEMPFAIL

/// One node of a job, as a pure state machine: it joins, runs what it is assigned, reports, and
/// stops when told. No socket, process, clock or thread; the agent and the simulator drive this
/// very class.
///
/// A worker is *elastic* once it has attached and said that it is elastic: it is not ended with
/// its round, but is suspended and given a place in the next one. All others end with their round,
/// and so does a worker that has not suspended in time.
///
/// Promises, each checked by the simulator: no worker of a round is launched, and none given a
/// place in it, while one of an earlier round is alive and not suspended; a round that was fenced
/// is never begun afterwards; force follows a request to stop after `shutdown_timeout` at the
/// latest, or once the workers have had their time that were to save their state and leave; the
/// failure reported is the first one, never an echo of our own stopping; it quits with no worker
/// alive unless they resist SIGKILL.
///
/// The node (NodeState, in its report):
///
///     stopped --Assign--> running --all succeeded--> finished
///        ^                 | |  failed, Stop, Fenced, Closed, newer Assign, quit
///        |                 | +--------> stopping --+
///        +--all suspended--+                       |
///        +------------------- all gone or suspended
///
/// The workers: see WorkerState. The next order for a worker is a function of its state and of what
/// the node wants of all of them: see next_order(). The way out of the job: see Leave.
class AgentCore {
   public:
    AgentCore(AgentConfig config, Instant now);

    [[nodiscard]] AgentEffects step(Instant now, const AgentEvent& event);
    [[nodiscard]] AgentEffects advance(Instant now);
    [[nodiscard]] Instant next_deadline() const;

    [[nodiscard]] const rendezvous::NodeReport& report() const noexcept { return report_; }
    /// The last one that was begun.
    [[nodiscard]] const Assignment& assignment() const noexcept { return round_.assignment; }
    /// Those that are suspended or wait for a first place included, and those that are ending.
    [[nodiscard]] bool has_workers() const { return workers_.any_alive(); }
    /// Whether a worker is there and waits for a round.
    [[nodiscard]] bool is_suspended(std::uint32_t local_rank) const;
    /// Its end as what it counts, before it is acted upon: an elastic worker that ends with success
    /// in the middle of a round, and was not to leave, has failed all the same.
    [[nodiscard]] std::optional<WorkerFailure> failure_in(const WorkerExited& exited) const;
    /// It has decided to end: nothing keeps it in the job any more.
    [[nodiscard]] bool leaving() const noexcept { return leave_.quit.has_value(); }
    [[nodiscard]] bool done() const noexcept { return leave_.stage == Leave::Stage::done; }
    /// When it ends for want of a rendezvous; Instant::max() while it needs none.
    [[nodiscard]] Instant give_up_at() const noexcept { return link_.give_up_at; }
    /// A request to quit would begin a drain at this moment.
    [[nodiscard]] bool would_drain() const;
    /// Some worker that is alive has had a place in a round.
    [[nodiscard]] bool holds_state() const { return workers_.any_holds_state(); }
    /// A signal asked it to quit, and its workers are yet to save their state.
    [[nodiscard]] bool draining() const noexcept { return leave_.signal != 0 && !leaving(); }

   private:
    /// The agent's knowledge of the daemon.
    struct Link {
        bool up = false;
        bool queued = false;  ///< The node has a place in the queue for a round.
        Instant heard_at{};
        Instant heartbeat_at = Instant::max();
        Instant give_up_at = Instant::max();
    };

    /// Facts of one round here that are not in the report. Replaced when a round begins.
    struct Round {
        Assignment assignment;
        Instant ended_at = Instant::max();  ///< The first sign of its end.
        bool pausing = false;               ///< Its workers go to a step boundary, and out.
        /// Said by rank 0, and not known to be heard: told again on every new connection.
        std::optional<rendezvous::Resumed> resumed{};
        Instant resumed_at{};
        rendezvous::SaveStacks stacks_wanted{};  ///< The last alarm; its number is 0: none.
        std::uint32_t stacks_being_saved = 0;    ///< For this alarm; 0: they are not.
    };

    /// The time that workers have to leave their round, or to end. Replaced when that is over.
    struct Grace {
        Instant kill_at = Instant::max();
        bool in_user_code = false;  ///< They got more time, for they cannot hear that it is over,
        Instant tell_at = Instant::max();  ///< and people are told so when the usual time is over.
        Instant resist_at = Instant::max();  ///< Workers alive by then survive even SIGKILL.
    };

    /// Workers that are started ahead of a round, because the daemon asked for them.
    struct Ahead {
        bool wanted = false;
        /// When those are started again that died, and after what time.
        Instant again_at = Instant::max();
        Duration delay{};
        Instant started_at = Instant::min();
    };

    /// The way out of the job: the wish of this node to leave, and the daemon's word.
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
    /// A verdict, a second signal and whatever else allows no delay lead to ending at once; a
    /// verdict leads to saving if the node was to leave.
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
        int signal = 0;                     ///< That asked for it; 0: the daemon did.
        Instant asked_at = Instant::min();  ///< When a signal came first.
        Instant until = Instant::max();     ///< By then the state is saved.
        Cause why{};
        std::uint32_t saved = 0;   ///< Workers that have ended with success meanwhile,
        std::uint32_t failed = 0;  ///< and those that failed as they saved.
        std::optional<Quit> quit{};
    };

    /// Once all workers are out of their round the node joins anew.
    struct Rejoin {};

    void on(Instant now, const LinkUp& event);
    void on(Instant now, const LinkDown& event);
    void on(Instant now, const Received& event);
    void on(Instant now, const WorkerExited& event);
    void on(Instant now, const WorkerAttached& event);
    void on(Instant now, const WorkerSuspended& event);
    void on(Instant now, const WorkerResumed& event);
    void on(Instant now, const WorkerLostPeer& event);
    void on(Instant now, const StepsCommitted& event);
    void on(Instant now, const HangSuspected& event);
    void on(Instant now, const WorkersAtWork& event);
    void on(Instant now, const StacksSaved& event);
    void on(Instant now, const StoreOffered& event);
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
    /// Alive says no more than that the daemon lives; Operated and Elsewhere are not for agents.
    template <class Message>
    void handle(Instant /*now*/, const Message& /*message*/) {}

    // ---- The daemon: agent_core.cc.
    void send_join(Instant now);
    void tell(Instant now);  ///< The truth about this node, or that it leaves.
    void update_patience(Instant now);
    void give_up(Instant now);  ///< --join-timeout is over.

    // ---- Rounds: agent_rounds.cc.
    [[nodiscard]] bool is_in_round() const;
    [[nodiscard]] bool names_spent_store(const Assignment& assignment) const;
    void begin_round(Instant now, const Assignment& assignment);
    void begin_stopping(Instant now, const Cause& cause);
    /// `round` and all before it will never be begun here.
    void abandon(RoundId round);
    /// The same, for want of its store.
    void refuse(RoundId round);
    /// The report is about `round` from here on; what was true of another is not true of it.
    void report_on(RoundId round);
    /// The round is over here once all workers are out.
    void settle(Instant now);
    void begin_next(Instant now);

    // ---- Workers: agent_workers.cc.
    /// Gives each worker its next order. `cause`: of the end of the round, if it ends now.
    void order_workers(const Cause* cause = nullptr);
    [[nodiscard]] Wanted wanted() const;
    void lose_member(Instant now, const Worker& lost, const WorkerExited& exited,
                     const std::optional<WorkerFailure>& failure);
    void lose_waiting(Instant now, const Worker& lost);
    [[nodiscard]] bool was_stopped_by_us(const Worker& worker, const WorkerFailure& failure) const;
    void kill_workers(Instant now);
    void end_for_unkillable(Instant now);
    [[nodiscard]] bool keeps_ahead() const;
    void prestart(Instant now);
    void prestart_later(Instant now);
    void replace_lost(Instant now, const Worker& lost);
    /// As far as is known here, the job does not end with this round.
    [[nodiscard]] bool expects_another_round() const;

    // ---- The way out: agent_leaving.cc.
    /// Its workers are to save and end: at a step boundary, or at once.
    void begin_leaving(Instant now, Leave::Stage stage, const Cause& why);
    /// The time of the present stage is over.
    [[nodiscard]] Instant leave_deadline() const;
    void go_on_leaving(Instant now);
    /// All workers are out of a round. False if the node takes part in the next one.
    [[nodiscard]] bool leave_between_rounds(Instant now);
    /// No worker is left of a node that saved its state.
    void conclude_saving(Instant now);
    void quit(Instant now, Quit how);
    void quit_drained(Instant now);
    /// As the signal that asked for it ends a program, if one did.
    void quit_unsaved(Instant now, QuitReason reason);
    void finish();
    [[nodiscard]] Cause why_leaving() const;

    // ---- Reports: agent_reports.cc.
    void update_elastic(Instant now);
    void update_at_work(Instant now);
    void save_stacks();

    AgentConfig config_;
    rendezvous::NodeReport report_;
    Workers workers_;
    Link link_;
    Round round_;
    /// The daemon's word of what follows when all workers are out of the round, if it has come.
    std::variant<std::monostate, Rejoin, Assignment> next_;
    Grace grace_;
    Ahead ahead_;
    Leave leave_;
    /// The last recoveries that were told of; more are never told at once.
    std::deque<rendezvous::Incident> told_;
    AgentEffects effects_;
};

}  // namespace regroup::agent
