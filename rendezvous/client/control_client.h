// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "rendezvous/base/clock.h"
#include "rendezvous/client/endpoint.h"
#include "rendezvous/client/leader_connection.h"
#include "rendezvous/core/messages.h"
#include "rendezvous/security/credentials.h"

namespace regroup::rendezvous {

/// An agent's connection to the daemon: a LeaderConnection that speaks the control protocol. When a
/// daemon answers Elsewhere, the client connects to the daemon that it names; the owner never sees
/// that message.
class ControlClient {
   public:
    struct Handlers {
        std::function<void()> on_up;
        std::function<void()> on_down;
        std::function<void(FromDaemon message)> on_message;
        /// An attempt failed, or the peer does not speak the control protocol; one sentence for
        /// people. `answered` is true if a process answered at the endpoint.
        std::function<void(const std::string& reason, bool answered)> on_trouble;
    };

    /// `io` outlives the client. Handlers are never called after its destruction.
    ControlClient(boost::asio::io_context& io, Endpoint endpoint, Handlers handlers);
    /// Requires at least one endpoint. A node that does not reconnect within `heartbeat_timeout` is
    /// lost. Therefore no attempt takes longer than that, and no pause longer than a quarter of it.
    ControlClient(boost::asio::io_context& io, std::vector<Endpoint> endpoints, Handlers handlers,
                  Duration heartbeat_timeout = std::chrono::seconds(30),
                  security::Identity identity = {});
    ~ControlClient();
    ControlClient(const ControlClient&) = delete;
    ControlClient& operator=(const ControlClient&) = delete;

    void start();
    /// Queues `message` on the open connection. Without a connection the message is dropped, since
    /// every join states the complete state of the node.
    void send(const FromAgent& message);
    /// Closes the connection; another is opened.
    void drop();
    /// Sends what is queued, for at most `limit`, closes, and calls `done`. No reconnection.
    void stop(Duration limit, std::function<void()> done);

    /// The daemon's address as resolved and connected to, for people; empty before that.
    [[nodiscard]] const std::string& peer() const;
    /// Its host as the endpoint names it.
    [[nodiscard]] const std::string& daemon_host() const;
    /// This node's address on that connection.
    [[nodiscard]] const std::string& local_address() const;

   private:
    struct Impl;
    std::shared_ptr<Impl> impl_;
};

}  // namespace regroup::rendezvous
