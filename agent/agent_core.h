// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/agent_events.h"
#include "rendezvous/core/messages.h"

namespace regroup::agent {

struct AgentConfig {
    std::string job;
    rendezvous::NodeId node;
    rendezvous::JobPolicy policy;
    rendezvous::Offer offer;
    /// Longest time without an assignment, or without the daemon, before the agent gives up. Does
    /// not run while the node is a spare.
    Duration join_timeout = std::chrono::minutes(10);
    /// Others depend on this process, which serves the rendezvous: it goes when the job is closed,
    /// not when its own workers are done.
    bool stays_until_closed = false;
    /// A round's workers that have been asked to end do not hold up the next one, where there is
    /// memory for both.
    bool overlap_restart = false;
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
/// A worker is *resident* once it has attached and said that it is elastic: it is not ended with
/// its round, but parks and is given a place in the next one. All others, and who has not parked in
/// time, end with their round.
///
/// Where there is memory, the next workers are started while the last ones are still ending. Those
/// of programs with the SDK wait for their places until the last ones are gone, or parked. With
/// `overlap_restart` any are launched, for a new round, beside old ones that were asked to end.
///
/// Promises, each checked by the simulator: no worker of a round is launched, and none given a
/// place in it, while one of an earlier round is alive and not parked, or with `overlap_restart`
/// was not asked to end, or is from before the last round; a round that was fenced is
/// never begun afterwards; force follows a request to stop after `shutdown_timeout` at the latest,
/// or once those have had their time that were to save their state and leave;
/// the failure reported is the first one, never an echo of our own stopping; it quits with no
/// worker alive unless they resist SIGKILL.
///
///     stopped --Assign--> running --all succeeded--> finished
///        ^                 | |  failed, Stop, Fenced, Closed, newer Assign, quit
///        |                 | +--------> stopping --+
///        +--all parked-----+                       |
///        +---------------------- all gone or parked
class AgentCore {
   public:
    AgentCore(AgentConfig config, Instant now);

    [[nodiscard]] AgentEffects step(Instant now, const AgentEvent& event);
    [[nodiscard]] AgentEffects advance(Instant now);
    [[nodiscard]] Instant next_deadline() const;

    [[nodiscard]] const rendezvous::NodeReport& report() const noexcept { return report_; }
    /// The last one that was begun.
    [[nodiscard]] const Assignment& assignment() const noexcept { return assignment_; }
    /// Parked and prestarted ones included, and those that are ending.
    [[nodiscard]] bool has_workers() const noexcept {
        return !workers_.empty() || !outgoing_.empty();
    }
    /// Whether a worker is there and waits for a round.
    [[nodiscard]] bool is_parked(std::uint32_t local_rank) const;
    /// Of these, whether any has a place, or is still ending after its place was released.
    [[nodiscard]] bool has_placed() const noexcept { return !workers_.empty(); }
    [[nodiscard]] bool has_outgoing() const noexcept { return !outgoing_.empty(); }
    /// Whether this is the end of one of those.
    [[nodiscard]] bool is_outgoing(const WorkerExited& exited) const;
    /// Its end as what it counts, before it is acted upon: a resident worker that ends with success
    /// in the middle of a round, and was not to leave, has failed all the same.
    [[nodiscard]] std::optional<WorkerFailure> failure_in(const WorkerExited& exited) const;
    /// The node is on its way out, or is out.
    [[nodiscard]] bool leaving() const noexcept { return quit_.has_value(); }
    [[nodiscard]] bool done() const noexcept { return quit_sent_; }
    /// When it ends for want of a rendezvous; Instant::max() while it is content.
    [[nodiscard]] Instant give_up_at() const noexcept { return give_up_at_; }
    /// A request to quit would begin a drain at this moment.
    [[nodiscard]] bool would_drain() const;
    /// Some worker that is alive has had a place in a round.
    [[nodiscard]] bool holds_state() const;
    /// It was asked to quit, and its workers go on to the next step boundary.
    [[nodiscard]] bool draining() const noexcept { return drain_signal_ != 0 && !quit_; }

   private:
    void on(Instant now, const LinkUp& event);
    void on(Instant now, const LinkDown& event);
    void on(Instant now, const Received& event);
    void on(Instant now, const WorkerExited& event);
    void on(Instant now, const WorkerAttached& event);
    void on(Instant now, const WorkerParked& event);
    void on(Instant now, const RoomForSuccessors& event);
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

    /// A process, as long as it is alive.
    struct Worker {
        RoundId launched_in = RoundId::none;  ///< None: ahead of a round.
        std::uint32_t generation = 0;
        RoundId round = RoundId::none;  ///< In which it trains; none while it is parked.
        bool elastic = false;
        bool may_wait = false;   ///< Another like it can be started ahead of a round.
        bool successor = false;  ///< Was started as its predecessor, which was not elastic, ended.
        bool parked = false;
        bool trained = false;  ///< Has had a place in a round, and may hold its state.
        bool left = false;  ///< Its round, by its own word; what ends it then is nobody's failure.
        std::uint64_t step = 0;  ///< Committed, by the time it was parked.
        int asked_by = 0;        ///< The signal by which it was asked to end.
        std::string hung;        ///< Why it was killed, if that is because a round hung on it.
        bool hung_by_silence = false;  ///< See WorkerFailure::by_silence.
    };

    using WorkerMap = std::map<std::uint32_t, Worker>;  ///< By local rank: those alive.

    void begin_round(Instant now, const Assignment& assignment);
    [[nodiscard]] bool names_spent_store(const Assignment& assignment) const;
    /// For the alarm of which was heard last.
    void save_stacks();
    /// `round` and all before it will never be launched here.
    void abandon(Instant now, RoundId round);
    /// The same, for want of its store.
    void refuse(Instant now, RoundId round);
    /// What is reported of one round is not true of another.
    void forget_round();
    /// Every worker is gone or parked, or its place was passed on; when quitting, gone.
    [[nodiscard]] bool settled() const;
    /// Those who are to end may be succeeded before they have.
    [[nodiscard]] bool may_overlap() const;
    /// As far as is known here, the job does not end with this round.
    [[nodiscard]] bool expects_another_round() const;
    /// The next round waits for them, and not without a limit.
    void await_outgoing(Instant now);
    void kill_outgoing();
    [[nodiscard]] bool was_stopped_by_us(const Worker& worker, const WorkerFailure& failure) const;
    void begin_stopping(Instant now, const std::string& reason);
    /// Asks all workers to end that were not asked yet.
    void end_workers(Instant now, int signal);
    void settle(Instant now);
    void prestart(Instant now);
    /// One that was started ahead has ended, or was parked.
    void lose_ahead(Instant now, const Worker& lost);
    /// Others are started in the places of those that have died, after a while.
    void prestart_later(Instant now);
    /// Those that were started ahead wait for a round here, or would, and were asked for.
    [[nodiscard]] bool keeps_ahead() const;
    void replace_lost(Instant now, const Worker& lost);
    /// The node was asked to go by a signal, and `report_` says so.
    void begin_drain(Instant now, int signal);
    /// Its workers have saved their state and ended, or train nothing: the node goes.
    void leave(Instant now);
    [[nodiscard]] std::string drained_for() const;
    /// Has the workers save their state and end: at the next step boundary, or as they are if they
    /// are out of a round.
    void depart(Instant now, const std::string& reason);
    /// Those of them who are parked leave, too: no further round is to be waited for.
    void let_parked_leave(Instant now);
    /// Until when a node that is to leave waits for one more round, and for the first step of that;
    /// Instant::max() if it does not.
    [[nodiscard]] Instant wait_until() const;
    /// It was to leave when its round began, and that has committed nothing yet.
    [[nodiscard]] bool forms_extra_round() const;
    [[nodiscard]] std::string reason_to_leave() const;
    /// Whether parked workers have come to different steps goes into the report.
    void update_uneven();
    void update_at_work(Instant now);
    /// One that was to save its state has ended.
    void count_departed(const Worker& worker, bool failed);
    /// No worker is left of a node that departs.
    void end_departure(Instant now, bool orderly);
    /// Who departs has not done so in time.
    void end_alone(Instant now);
    void cut_departure_short(Instant now);
    /// Quits now, or as soon as the last worker is gone.
    void quit(Instant now, Quit how);
    void send_join(Instant now);
    void tell(Instant now);  ///< The truth about this node, or that it leaves.
    void update_patience(Instant now);
    /// --join-timeout is over.
    void give_up(Instant now);
    void update_resident(Instant now);

    AgentConfig config_;
    Duration heartbeat_interval_;
    rendezvous::NodeReport report_;
    Assignment assignment_;
    /// Told, as rank 0's node, and not known to be heard: told again on every new connection.
    std::optional<rendezvous::Resumed> resumed_;
    Instant resumed_at_{};
    Instant ended_at_ = Instant::max();  ///< The first sign of the end of this round.
    /// The last recoveries that were told of; more are never told at once.
    static constexpr std::size_t kToldLimit = 32;
    std::deque<rendezvous::Incident> told_;
    WorkerMap workers_;
    /// Of one generation: they have been asked to end, and their places were released.
    WorkerMap outgoing_;
    RoundId outgoing_round_ = RoundId::none;
    bool passed_on_ = false;        ///< They do not hold up the next round, or the end of this one.
    std::uint32_t generation_ = 0;  ///< Grows whenever places are released.

    bool link_up_ = false;
    bool rejoin_ = false;       ///< Fenced: join again once the workers are gone or parked.
    bool spare_ = false;        ///< Has a place in the queue for a round.
    bool may_prestart_ = true;  ///< No worker that was started ahead has died since the last round.
    bool ahead_wanted_ = false;  ///< The daemon wants them, so that is not the last word.
    Instant prestarted_at_ = Instant::min();
    Duration prestart_delay_{};
    std::uint32_t stacks_wanted_ = 0;  ///< The last alarm of this round; 0: none.
    std::string stacks_reason_;
    std::uint32_t stacks_being_saved_ = 0;  ///< For this alarm; 0: they are not.
    bool pausing_ = false;     ///< The round's workers were asked to park at a step boundary.
    bool departing_ = false;   ///< Or to save their state and end,
    bool at_once_ = false;     ///< also if they are parked.
    bool saved_ = false;       ///< Of these, one has ended with success;
    bool unsaved_ = false;     ///< one has failed as it saved;
    bool left_ = false;        ///< one has ended with success without parking;
    bool died_ = false;        ///< one has failed without parking.
    bool unfinished_ = false;  ///< One has ended in this round before the training was finished.
    /// Of the departure; kept when it is put off, until a round begins.
    std::string leave_reason_;
    bool extra_round_ = false;       ///< The node was to leave when its round began.
    std::uint64_t step_before_ = 0;  ///< `report_.step` by then.
    int drain_signal_ = 0;           ///< The node wants to leave because of it.
    std::optional<Assignment> next_assignment_;
    std::optional<Quit> quit_;
    Instant quit_requested_at_ = Instant::min();
    bool hurried_ = false;
    bool quit_sent_ = false;

    Instant heard_at_{};
    Instant heartbeat_at_ = Instant::max();
    Instant force_at_ = Instant::max();
    /// By then the workers would have been ended by force, were they not at work of their own.
    Instant patience_until_ = Instant::max();
    Instant resist_at_ = Instant::max();          ///< Workers alive by then survive even SIGKILL.
    Instant outgoing_force_at_ = Instant::max();  ///< For those whose places were passed on.
    Instant prestart_at_ = Instant::max();        ///< Those that have died are started again.
    Instant give_up_at_ = Instant::max();
    Instant drain_until_ = Instant::max();   ///< A drain that takes longer is cut short.
    Instant depart_until_ = Instant::max();  ///< By then its workers have saved their state.
    AgentEffects effects_;
};

}  // namespace regroup::agent
