// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>

#include "agent/core/agent_core.h"
#include "tests/simulation/workers.h"
#include "tests/simulation/world.h"

namespace regroup::simulation {

/// An agent's connection to a daemon, kept as the real client keeps it.
struct AgentLink {
    /// Tries to connect, a moment later.
    void connect();
    void open() { connection = world.network.open(host, endpoint); }
    /// Closes the connection, if there is one.
    void close();
    /// Tries the other daemon next, if there is one.
    void rotate() { endpoint = (endpoint + 1) % world.plan.daemons(); }
    [[nodiscard]] bool is_open() const noexcept { return connection != kNoConnection; }

    World& world;
    std::uint32_t host;
    std::uint64_t attempt = 0;  ///< Of connecting; a new attempt cancels older ones.
    std::uint32_t connection = kNoConnection;
    std::uint32_t endpoint = 0;  ///< The daemon that the agent tries to reach, or has reached.
};

/// The wardens of one host. A warden reports the death of its agent, unless it is killed as well:
/// a join with the state of the agent's last message, and a leave.
class Warden {
   public:
    Warden(World& world, std::uint32_t host) : world_(world), host_(host) {}

    /// A new agent starts.
    void begin(rendezvous::Join join) { last_ = {std::move(join), 0, false}; }
    /// The agent sends a message.
    void remember(const rendezvous::NodeReport& report, std::uint32_t endpoint);
    void on_killed();
    /// The report of a death arrives, if it has not been forgotten.
    void on_arrival(const std::function<bool(std::uint32_t)>& is_up);
    void forget() { on_the_way_.clear(); }

   private:
    struct LastWord {
        rendezvous::Join join;
        std::uint32_t endpoint = 0;
        bool was_sent = false;  ///< The agent has sent a message.
    };

    World& world_;
    std::uint32_t host_;
    LastWord last_{};
    std::deque<LastWord> on_the_way_{};  ///< Of killed agents.
};

/// One host and its agent: the core of the real agent in a simulated shell, in simulated time.
/// Every new agent on the host is a new node of the same name.
class SimulatedAgent {
   public:
    SimulatedAgent(World& world, Workers& workers, std::uint32_t host);

    void start();
    /// SIGKILL to the agent.
    void kill();
    /// The host loses power.
    void power_off();
    void quit(int signal);
    /// The connection breaks on both sides.
    void break_link();
    /// Opens another connection before the daemon has seen the end of this one.
    void double_link();

    void on_connected(std::uint64_t attempt, bool daemon_is_up);
    void on_arrival(Arrival arrival);
    /// One of its own events: timer, offer of a store, second signal.
    void on_due(EventKind kind, std::uint64_t incarnation);
    void on_worker_word(const WorkerWord& word);

    [[nodiscard]] const AgentLink& link() const noexcept { return link_; }
    [[nodiscard]] Warden& warden() noexcept { return warden_; }
    [[nodiscard]] Uptime& uptime() noexcept { return uptime_; }
    [[nodiscard]] bool running() const noexcept { return core_.has_value(); }
    [[nodiscard]] const agent::AgentCore* core() const noexcept {
        return core_ ? &*core_ : nullptr;
    }
    [[nodiscard]] const rendezvous::NodeId& node() const noexcept { return node_; }
    [[nodiscard]] std::uint64_t incarnation() const noexcept { return incarnation_; }
    [[nodiscard]] Instant awake_since() const noexcept {
        return core_ ? uptime_.awake_since(world_.now) : Instant::max();
    }
    /// How the last agent ended; empty if it was killed.
    [[nodiscard]] const std::optional<agent::Quit>& last_quit() const noexcept { return quit_; }

   private:
    /// Carries out the effects of the core.
    struct Hands;

    void step(const agent::AgentEvent& event);
    /// Passes the workers' steps to the core. The shell must do so before any event that may lead
    /// to a report.
    void tell_steps();
    /// The connection is lost, and tried again.
    void lose_link();
    void follow(const rendezvous::Elsewhere& elsewhere);
    void apply(agent::AgentEffects effects);
    void arm();
    void offer_store();
    void end();

    World& world_;
    Workers& workers_;
    std::uint32_t host_;
    AgentLink link_;
    Warden warden_;
    std::optional<agent::AgentCore> core_{};
    rendezvous::NodeId node_{};
    DriftingClock clock_{};
    std::uint64_t incarnation_ = 0;
    Instant timer_at_ = Instant::max();
    Uptime uptime_{};
    std::optional<agent::Quit> quit_{};
};

}  // namespace regroup::simulation
