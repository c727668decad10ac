// SPDX-License-Identifier: Apache-2.0
//
// Nodes that speak the real protocol from one thread. Their workers obey at once.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/client/control_client.h"
#include "rendezvous/core/messages.h"
#include "rendezvous/security/credentials.h"

namespace regroup::bench {

/// Some nodes did not come to a state in time.
class Unfinished : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

class Fleet;

/// An agent, as far as the daemon sees it. Its workers obey at once.
class Node {
   public:
    Node(Fleet& fleet, std::uint32_t index);
    void start() { client_->start(); }
    void beat();
    /// It is told to the daemon, as by the warden of an agent.
    void die();
    [[nodiscard]] const rendezvous::JobPolicy& policy() const { return join_.policy; }
    [[nodiscard]] rendezvous::RoundId round() const { return report_.round; }
    [[nodiscard]] bool is_up() const { return up_; }
    /// The next time that it is told to go on counts.
    void forget() { is_back_ = false; }

   private:
    void hear(const rendezvous::FromDaemon& message);
    void join();
    void report();

    Fleet& fleet_;
    rendezvous::Join join_;
    rendezvous::NodeReport report_{};
    bool up_ = false;
    bool is_back_ = false;
    std::chrono::steady_clock::time_point beat_at_{};  // Of the heartbeat that is not answered yet.
    std::unique_ptr<rendezvous::ControlClient> client_;
};

/// All nodes of a job.
class Fleet {
   public:
    Fleet(std::uint32_t size, std::uint16_t port, security::Credentials credentials);

    /// Until `counted` has come to `wanted`. Throws Unfinished after two minutes.
    void await(const std::uint32_t& counted, std::uint32_t wanted, const char* what);
    void run_for(Duration time) { io.run_for(time); }
    /// A node could not reach the daemon, or is not welcome.
    void note(const std::string& trouble) { ++troubles_[trouble]; }

    boost::asio::io_context io{1};
    const std::uint32_t size;
    const std::uint16_t port;
    const security::Credentials credentials;
    std::vector<std::unique_ptr<Node>> nodes;
    std::uint32_t assigned = 0;  ///< Nodes that were assigned since this was set to 0.
    std::uint32_t back = 0;      ///< The same for nodes that came back and were told to go on.
    std::chrono::steady_clock::time_point last_join{};
    std::vector<double> answers_ms;  ///< To heartbeats.

   private:
    /// A node sends a heartbeat when it is its turn, one node after another, each once a second.
    void tick();

    boost::asio::steady_timer timer_;
    std::chrono::steady_clock::time_point beat_at_{};
    std::size_t next_ = 0;
    std::map<std::string, std::size_t> troubles_;  // And how often.
};

}  // namespace regroup::bench
