// SPDX-License-Identifier: Apache-2.0
//
// All that an AgentCore knows of its node, and the functions that change it. Internal.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <variant>

#include "agent/core/agent_core.h"
#include "agent/core/workers.h"

namespace regroup::agent::core {

/// How far the node has left its job. docs/design.md says which stage follows which. A verdict or a
/// second signal leads to `ending` at once. If the node has to leave, a verdict leads to `saving`.
enum class LeaveStage : std::uint8_t {
    member,
    asked,        ///< The workers train; the daemon says when to leave.
    at_boundary,  ///< They save and end at the next step boundary.
    saving,       ///< They save and end at once.
    ending,       ///< They end.
    hurried,      ///< They are killed.
    done,
};

struct AgentState {
    AgentState(AgentConfig agent_config, Instant now);

    AgentConfig config;
    Instant began;
    rendezvous::NodeReport report{};
    Workers workers;

    /// The connection to the daemon.
    struct Link {
        bool up = false;
        bool queued = false;  ///< The node has a place in the queue for a round.
        Instant heard_at{};
        Instant heartbeat_at = Instant::max();
        Instant give_up_at = Instant::max();
        /// The last answer of the daemon: it does not take this node in now.
        std::optional<rendezvous::Refusal> refusal{};
    } link{};

    /// Facts about the present round that are not in the report. Replaced when a round begins.
    struct Round {
        Assignment assignment;
        Instant ended_at = Instant::max();  ///< Time of the first sign of its end.
        bool pausing = false;               ///< Its workers suspend at a step boundary.
        bool is_agreed = false;             ///< Its workers end at a step on which ranks agree.
        bool any_stopped = false;           ///< One has ended so.
        /// The report of rank 0. Sent again on each new connection until the daemon answers.
        std::optional<rendezvous::Resumed> resumed{};
        Instant resumed_at{};
        rendezvous::SaveStacks stacks_wanted{};  ///< The last alarm. Number 0: none.
        std::uint32_t stacks_being_saved = 0;    ///< Their alarm, or 0.
        enum class Check : std::uint8_t { none, awaited, done };
        Check check = Check::none;  ///< Of the health of this node after a failure.
        Instant check_until{};
    } round{};

    /// The node joins again once all workers are out of their round.
    struct Rejoin {};
    /// The daemon's message about what follows when all workers are out of the round.
    std::variant<std::monostate, Rejoin, Assignment> next{};

    /// The time that workers have to leave their round, or to end. Replaced when they have.
    struct Grace {
        Instant kill_at = Instant::max();
        bool in_user_code = false;           ///< They got more time because they are in user code.
        Instant tell_at = Instant::max();    ///< When to print that.
        Instant resist_at = Instant::max();  ///< Workers alive at this time survive SIGKILL.
    } grace{};

    /// Workers that are started ahead of a round at the daemon's request.
    struct Ahead {
        bool wanted = false;
        /// The time of the next start of workers that died, and the present delay.
        Instant again_at = Instant::max();
        Duration delay{};
        Instant started_at = Instant::min();
    } ahead{};

    /// Leaving the job: the request of this node, and the answer of the daemon.
    struct Leave {
        LeaveStage stage = LeaveStage::member;
        int signal = 0;                     ///< The signal that asked for it; 0: the daemon asked.
        Instant asked_at = Instant::min();  ///< Time of the first signal.
        Instant until = Instant::max();     ///< Deadline for saving the state.
        Cause why{};
        std::uint32_t saved = 0;   ///< Workers that have ended with success meanwhile.
        std::uint32_t failed = 0;  ///< Workers that failed to save.
        std::optional<Quit> quit{};
    } leave{};

    Instant recheck_at = Instant::max();  ///< Of a node that is queued for a round.
    std::string fault{};                  ///< Why this node may not take part; empty: it may.
    /// The last printed recoveries, to ignore repetitions.
    std::deque<rendezvous::Incident> told{};
    AgentEffects effects{};
};

[[nodiscard]] inline bool is_in_round(const AgentState& node) {
    return node.report.state == rendezvous::NodeState::running ||
           node.report.state == rendezvous::NodeState::stopping;
}
/// True if workers of this round are to train here.
[[nodiscard]] inline bool runs(const AgentState& node, RoundId round) {
    return round == node.report.round && node.report.state == rendezvous::NodeState::running;
}
/// True if a round has begun here.
[[nodiscard]] inline bool has_run(const AgentState& node) {
    return node.round.assignment.round != RoundId::none;
}
/// True if nothing of the round is left here, so that the next one may begin. A node that is about
/// to leave does not wait for the check.
[[nodiscard]] inline bool is_ready(const AgentState& node) {
    const bool awaits_check = node.round.check == AgentState::Round::Check::awaited &&
                              node.leave.stage <= LeaveStage::asked;
    return node.workers.all_out() && !awaits_check;
}
/// True if the agent has decided to end.
[[nodiscard]] inline bool is_quitting(const AgentState& node) {
    return node.leave.quit.has_value();
}
/// True if a signal asked the node to quit, and its workers have yet to save their state.
[[nodiscard]] inline bool is_draining(const AgentState& node) {
    return node.leave.signal != 0 && !is_quitting(node);
}

// ---- The daemon: agent_daemon.cc.

void handle(AgentState& node, Instant now, const LinkUp& event);
void handle(AgentState& node, Instant now, const LinkDown& event);
void handle(AgentState& node, Instant now, const Received& event);
void handle(AgentState& node, Instant now, const StoreOffered& event);
void handle(AgentState& node, Instant now, const RendezvousServed& event);
void send_join(AgentState& node, Instant now);
void tell(AgentState& node, Instant now);  ///< Sends the report, or that the node leaves.
[[nodiscard]] bool waits_out(const AgentState& node, const rendezvous::Refused& refused);
[[nodiscard]] AgentCore::Part part(const AgentState& node);
/// Call after each event: whether the node waits for a round, and for how long.
void update_waits(AgentState& node, Instant now);
void give_up(AgentState& node, Instant now);  ///< --join-timeout is over.

// ---- Rounds: agent_rounds.cc.

[[nodiscard]] bool names_spent_store(const AgentState& node, const Assignment& assignment);
void begin_round(AgentState& node, Instant now, const Assignment& assignment);
void begin_stopping(AgentState& node, Instant now, const Cause& cause);
/// The same for a planned end. If all workers ask in each step whether to stop, they end at a step
/// on which all ranks agree.
void begin_planned_stop(AgentState& node, Instant now, const Cause& cause);
/// `round` and all earlier rounds will never begin on this node.
void abandon(AgentState& node, RoundId round);
/// The same, because the store of the round is not available.
void refuse(AgentState& node, RoundId round);
/// Ends the round on this node if all workers are out of it.
void settle(AgentState& node, Instant now);

// ---- Workers: agent_workers.cc.

void handle(AgentState& node, Instant now, const WorkerSuspended& event);
void handle(AgentState& node, Instant now, const WorkerExited& event);
void handle(AgentState& node, Instant now, const WorkerEnding& event);
[[nodiscard]] std::optional<WorkerFailure> failure_in(const AgentState& node,
                                                      const WorkerExited& exited);
/// Gives each worker its next order. `cause`: the cause of the round's end, if it ends now.
void order_workers(AgentState& node, const Cause* cause = nullptr);
/// Tells workers that ask for it to stop.
void ask_to_stop(AgentState& node, Instant now, const Cause& cause);
void kill_workers(AgentState& node, Instant now);
void end_for_unkillable(AgentState& node, Instant now);
[[nodiscard]] bool keeps_ahead(const AgentState& node);
void prestart(AgentState& node, Instant now);

// ---- Leaving: agent_leaving.cc.

void handle(AgentState& node, Instant now, const QuitRequested& event);
[[nodiscard]] bool would_drain(const AgentState& node);
[[nodiscard]] Cause why_leaving(const AgentState& node);
/// Lets the workers save and end, at a step boundary or at once.
void begin_leaving(AgentState& node, Instant now, LeaveStage stage, const Cause& why);
/// The end of the time for the present stage.
[[nodiscard]] Instant leave_deadline(const AgentState& node);
void go_on_leaving(AgentState& node, Instant now);
/// Call when all workers are out of a round. False if the node takes part in the next one.
[[nodiscard]] bool leave_between_rounds(AgentState& node, Instant now);
void quit(AgentState& node, Instant now, Quit how);
void quit_drained(AgentState& node, Instant now);
void finish(AgentState& node);

// ---- Reports of live workers, and of the node's health: agent_reports.cc.

void handle(AgentState& node, Instant now, const WorkerAttached& event);
void handle(AgentState& node, Instant now, const WorkerResumed& event);
void handle(AgentState& node, Instant now, const WorkerLostPeer& event);
void handle(AgentState& node, Instant now, const StepsCommitted& event);
void handle(AgentState& node, Instant now, const HangSuspected& event);
void handle(AgentState& node, Instant now, const WorkersAtWork& event);
void handle(AgentState& node, Instant now, const StacksSaved& event);
void handle(AgentState& node, Instant now, const NodeChecked& event);
void update_elastic(AgentState& node, Instant now);
void update_at_work(AgentState& node, Instant now);
void save_stacks(AgentState& node);
void check_node(AgentState& node, Instant now);
void quit_unhealthy(AgentState& node, Instant now);

}  // namespace regroup::agent::core
