// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <optional>
#include <string>

#include "agent/core/agent_core.h"
#include "tests/simulation/workers.h"
#include "tests/simulation/world.h"

namespace regroup::simulation {

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
    void pause(Instant until) { paused_until_ = std::max(paused_until_, until); }
    void quit(int signal);
    /// The connection breaks on both sides.
    void break_link();
    /// Opens another connection before the daemon has seen the end of this one.
    void double_link();

    /// The daemon that the agent tries to reach, or has reached.
    [[nodiscard]] std::uint32_t endpoint() const noexcept { return endpoint_; }
    void on_connected(std::uint64_t attempt, bool daemon_is_up);
    void on_arrival(Arrival arrival);
    void on_timer(std::uint64_t incarnation);
    void on_worker_word(const WorkerWord& word);
    void on_store_offer(std::uint64_t incarnation);
    void on_second_signal(std::uint64_t incarnation);
    /// The warden of a killed agent reports its death.
    void on_last_word(bool daemon_is_up);
    [[nodiscard]] bool has_last_word() const noexcept { return !last_words_.empty(); }
    void forget_last_words() { last_words_.clear(); }
    /// The daemon that the next warden message goes to.
    [[nodiscard]] std::uint32_t last_word_endpoint() const { return last_words_.front().endpoint; }

    [[nodiscard]] bool running() const noexcept { return core_.has_value(); }
    [[nodiscard]] const agent::AgentCore* core() const noexcept {
        return core_ ? &*core_ : nullptr;
    }
    [[nodiscard]] const rendezvous::NodeId& node() const noexcept { return node_; }
    [[nodiscard]] std::uint32_t connection() const noexcept { return connection_; }
    [[nodiscard]] std::uint64_t incarnation() const noexcept { return incarnation_; }
    [[nodiscard]] Instant paused_until() const noexcept { return paused_until_; }
    [[nodiscard]] Instant awake_since() const noexcept;
    /// How the last agent ended; empty if it was killed.
    [[nodiscard]] const std::optional<agent::Quit>& last_quit() const noexcept { return quit_; }
    [[nodiscard]] const std::string& name() const noexcept { return name_; }

   private:
    void step(const agent::AgentEvent& event);
    /// Passes the workers' steps to the core. The shell must do so before any event that may lead
    /// to a report.
    void tell_steps();
    void follow(const rendezvous::Elsewhere& elsewhere);
    void apply(agent::AgentEffects effects);
    void act(agent::SendToDaemon& effect);
    void act(agent::SendLeave& effect);
    void act(agent::DropLink& effect);
    void act(agent::BeginRound& effect);
    void act(agent::LaunchWorkers& effect);
    void act(agent::PrestartWorkers& effect);
    void act(agent::AssignWorkers& effect);
    void act(agent::EndRound& effect);
    void act(agent::PauseWorkers& effect);
    void act(agent::SignalWorkers& effect);
    void act(agent::SaveStacks& effect);
    void act(agent::CheckNode& effect);
    void act(agent::KillWorker& effect);
    void act(agent::TellAtWork& effect);
    void act(agent::TellRecovery& effect);
    void act(agent::Quit& effect);
    void arm();
    void connect();
    /// Tries the other daemon next, if there is one.
    void rotate() { endpoint_ = (endpoint_ + 1) % world_.plan.daemons(); }
    void offer_store();
    void end();

    World& world_;
    Workers& workers_;
    std::uint32_t host_;
    std::string name_;
    std::optional<agent::AgentCore> core_;
    rendezvous::NodeId node_;
    std::uint32_t workers_count_ = 1;
    DriftingClock clock_;
    std::uint64_t incarnation_ = 0;
    std::uint64_t attempt_ = 0;  ///< Of connecting; a new attempt cancels older ones.
    std::uint32_t connection_ = kNoConnection;
    std::uint32_t endpoint_ = 0;
    Instant timer_at_ = Instant::max();
    Instant started_at_ = Instant::max();
    Instant paused_until_{};
    std::optional<agent::Quit> quit_;
    /// The warden's messages: a join with the state of the last message, and a leave.
    struct LastWord {
        rendezvous::Join join;
        std::uint32_t endpoint = 0;
        bool was_sent = false;  ///< The agent has sent a message.
    };
    LastWord last_word_;
    std::deque<LastWord> last_words_;  ///< Of killed agents, still in transit.
};

}  // namespace regroup::simulation
