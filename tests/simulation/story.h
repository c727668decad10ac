// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/core/agent_core.h"
#include "rendezvous/core/rendezvous_core.h"

namespace regroup::simulation {

/// A small simulated job that is driven by commands: one daemon and a few agents. Messages arrive
/// at once, and commands control the workers. Every event is a line of text. The transcripts
/// consist of these lines; see transcripts/README.md for the commands.
class Story {
   public:
    /// Carries out one command and returns what happened. The answer to an invalid command is one
    /// line that begins with "?".
    [[nodiscard]] std::vector<std::string> tell(const std::string& command);

   private:
    struct Node {
        std::string name;
        std::optional<agent::AgentCore> core;
        rendezvous::NodeId id;
        int lives = 0;
        std::uint32_t workers = 1;
        std::optional<std::uint32_t> slot;
        std::uint16_t port = 0;
        bool connected = false;
        bool cut = false;  ///< Messages from and to it are lost, though its connection stays open.
        bool powered = true;
        Duration grace{};  ///< From SIGTERM to the end of the workers.
        rendezvous::RoundId round = rendezvous::RoundId::none;  ///< Of `alive`.
        std::uint32_t first_rank = 0;
        std::set<std::uint32_t> alive;
        Instant end_at = Instant::max();  ///< When its workers end after SIGTERM.
    };
    /// key=value, and "0", "1", ... for the other words.
    using Words = std::map<std::string, std::string>;

    void carry_out(const Words& words);
    void begin_job(const Words& words);
    void join(const Words& words);
    void exit_workers(Node& node, const Words& words);
    void advance(Duration span);

    void feed_agent(Node& node, const agent::AgentEvent& event);
    void apply(Node& node, const agent::AgentEffects& effects);
    void act(Node& node, const agent::SendToDaemon& effect);
    void act(Node& node, const agent::SendLeave& effect);
    void act(Node& node, const agent::DropLink& effect);
    void act(Node& node, const agent::LaunchWorkers& effect);
    /// For effects of elastic workers. Workers here end with their round.
    template <class Effect>
    void act(Node& /*node*/, const Effect& /*effect*/) {}
    void act(Node& node, const agent::SignalWorkers& effect);
    void act(Node& node, const agent::Quit& effect);
    void end_worker(Node& node, std::uint32_t local_rank, int exit_code, int signal);
    void connect(Node& node);
    void disconnect(Node& node);
    void gone(Node& node);

    void feed_daemon(const rendezvous::Event& event);
    void apply(const rendezvous::Effects& effects);
    void deliver();
    [[nodiscard]] Node* find(const std::string& name);
    [[nodiscard]] Node* find_id(const rendezvous::NodeId& id);
    [[nodiscard]] bool is_lost(const std::string& node, const std::string& kind);
    void say(std::string line) { lines_.push_back(std::move(line)); }

    Instant now_ = Instant{} + std::chrono::hours(1);
    rendezvous::JobPolicy policy_;
    std::optional<rendezvous::RendezvousCore> daemon_;
    std::map<std::string, Node> nodes_;
    struct Letter {
        std::string node;
        std::optional<rendezvous::FromAgent> to_daemon;
        std::optional<rendezvous::FromDaemon> to_agent;
    };
    std::deque<Letter> letters_;
    std::multimap<std::string, std::string> to_lose_;  ///< Node and kind of messages to lose.
    std::map<rendezvous::NodeId, std::string> said_;  ///< Each node's last report, to omit repeats.
    /// The last waiting situation that each node was told, to omit repeats.
    std::map<rendezvous::NodeId, rendezvous::Situation::Kind> waits_for_;
    std::string explained_;  ///< The daemon's last explanation that was told.
    std::uint16_t next_port_ = 2000;
    std::vector<std::string> lines_;
};

}  // namespace regroup::simulation
