// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/core/messages.h"

namespace regroup::agent {

using rendezvous::Assignment;
using rendezvous::RoundId;
using rendezvous::WorkerFailure;

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
};

// Events: what happened outside.

/// A connection to the daemon is open.
struct LinkUp {};
/// It broke, or could not be opened.
struct LinkDown {};
struct Received {
    rendezvous::FromDaemon message;
};
/// A worker is gone, with its whole group. `failure` is empty if it exited with success.
struct WorkerExited {
    RoundId round = RoundId::none;
    std::uint32_t local_rank = 0;
    std::optional<WorkerFailure> failure;
};
/// There is a new listening socket for the next round's store.
struct StoreOffered {
    std::uint16_t port = 0;
};
/// A signal asks this node to leave. A second one shortens the workers' grace to nothing, unless it
/// comes so soon that it is the same wish: timeout(1) signals its child and then the child's group,
/// systemd sends SIGHUP after SIGTERM. A person at a keyboard (SIGINT) is quicker than that.
struct QuitRequested {
    int signal = 0;
};
using AgentEvent =
    std::variant<LinkUp, LinkDown, Received, WorkerExited, StoreOffered, QuitRequested>;

// Effects: what the shell must now do, in this order.

struct SendToDaemon {
    rendezvous::FromAgent message;
};
/// The daemon has been silent for too long: close the connection and open another.
struct DropLink {};
/// Start all workers of this node. One that cannot be started is reported as WorkerExited.
struct LaunchWorkers {
    Assignment assignment;
};
struct SignalWorkers {
    RoundId round = RoundId::none;
    int signal = 0;  ///< SIGTERM, what the node itself was asked to end with, or SIGKILL.

    bool hurried = false;  ///< Forced because it was asked for again, not because of the time.

    [[nodiscard]] bool force() const noexcept { return signal == SIGKILL; }
};
/// The agent is done: end with `exit_code`, or by `signal` if that is not 0.
struct Quit {
    int exit_code = 0;
    int signal = 0;
    std::string reason;                          ///< For people; empty when the verdict says it.
    std::optional<rendezvous::Verdict> verdict;  ///< The job's, when it was closed.
};
using AgentEffect = std::variant<SendToDaemon, DropLink, LaunchWorkers, SignalWorkers, Quit>;
using AgentEffects = std::vector<AgentEffect>;

/// Exit codes of an agent that no worker is to blame for.
inline constexpr int kExitJobFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitNoRendezvous = 3;

/// One node of a job, as a pure state machine: it joins, runs what it is assigned, reports, and
/// stops when told. No socket, process, clock or thread; the agent and the simulator drive this
/// very class.
///
/// Promises, each checked by the simulator: no worker of a round is launched while one of an
/// earlier round is alive; a round that was fenced is never launched afterwards; force follows a
/// request to stop after `shutdown_timeout` at the latest; the failure reported is the first one,
/// never an echo of our own stopping; it quits with no worker alive unless they resist SIGKILL.
///
///     stopped --Assign--> running --all succeeded--> finished
///        ^                   | failed, Stop, Fenced, Closed, newer Assign, quit
///        +----all gone---- stopping
class AgentCore {
   public:
    AgentCore(AgentConfig config, Instant now);

    [[nodiscard]] AgentEffects step(Instant now, const AgentEvent& event);
    [[nodiscard]] AgentEffects advance(Instant now);
    [[nodiscard]] Instant next_deadline() const;

    [[nodiscard]] const rendezvous::NodeReport& report() const noexcept { return report_; }
    [[nodiscard]] bool has_workers() const noexcept { return !alive_.empty(); }
    /// The node is on its way out, or is out.
    [[nodiscard]] bool leaving() const noexcept { return quit_.has_value(); }
    [[nodiscard]] bool done() const noexcept { return quit_sent_; }

   private:
    void on(Instant now, const LinkUp& event);
    void on(Instant now, const LinkDown& event);
    void on(Instant now, const Received& event);
    void on(Instant now, const WorkerExited& event);
    void on(Instant now, const StoreOffered& event);
    void on(Instant now, const QuitRequested& event);

    void handle(Instant now, const rendezvous::Assign& message);
    void handle(Instant now, const rendezvous::Stop& message);
    void handle(Instant now, const rendezvous::Fenced& message);
    void handle(Instant now, const rendezvous::Dismissed& message);
    void handle(Instant now, const rendezvous::Alive& message);
    void handle(Instant now, const rendezvous::Waiting& message);
    void handle(Instant now, const rendezvous::Refused& message);
    void handle(Instant now, const rendezvous::Closed& message);

    template <class Message>
    void handle(Instant /*now*/, const Message& /*message*/) {}

    void launch(const Assignment& assignment);
    /// `round` and all before it will never be launched here.
    void abandon(RoundId round);
    [[nodiscard]] bool was_stopped_by_us(const WorkerFailure& failure) const;
    void begin_stopping(Instant now, int signal = SIGTERM);
    void all_gone(Instant now);
    /// Quits now, or as soon as the last worker is gone.
    void quit(Instant now, Quit how);
    void send_join();
    /// The truth about this node, or that it leaves.
    void tell(Instant now);
    void update_patience(Instant now);

    AgentConfig config_;
    Duration heartbeat_interval_;
    rendezvous::NodeReport report_;
    RoundId workers_round_ = RoundId::none;  ///< Of `alive_`; at most `report_.round`.
    std::set<std::uint32_t> alive_;          ///< Local ranks.

    bool link_up_ = false;
    bool rejoin_ = false;  ///< Fenced: join again once the workers are gone.
    bool spare_ = false;   ///< Has a place in the queue for a round.
    int stop_signal_ = 0;  ///< By which the workers were asked to end.
    std::optional<Assignment> next_assignment_;
    std::optional<Quit> quit_;
    Instant quit_requested_at_ = Instant::min();
    bool hurried_ = false;
    bool quit_sent_ = false;

    Instant heard_at_{};
    Instant heartbeat_at_ = Instant::max();
    Instant force_at_ = Instant::max();
    Instant resist_at_ = Instant::max();  ///< Workers alive by then survive even SIGKILL.
    Instant give_up_at_ = Instant::max();
    AgentEffects effects_;
};

}  // namespace regroup::agent
