// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "rendezvous/base/clock.h"
#include "rendezvous/client/endpoint.h"
#include "rendezvous/client/leader_connection.h"
#include "rendezvous/core/messages.h"
#include "rendezvous/security/credentials.h"

namespace regroup::rendezvous {

/// An agent's connection to the daemon, in the control protocol. When a daemon answers Elsewhere,
/// the client connects to the daemon that it names; the owner never sees that message.
class ControlClient : public LeaderConnection {
   public:
    struct Handlers : LeaderConnection::Handlers {
        std::function<void(FromDaemon message)> on_message;
    };

    ControlClient(boost::asio::io_context& io, Endpoint endpoint, Handlers handlers);
    /// A node that does not reconnect within `heartbeat_timeout` is lost. See LeaderConnection.
    ControlClient(boost::asio::io_context& io, std::vector<Endpoint> endpoints, Handlers handlers,
                  Duration heartbeat_timeout = std::chrono::seconds(30),
                  security::Identity identity = {});

    /// Queues `message` on the open connection. Without a connection the message is dropped, since
    /// every join states the complete state of the node.
    void send(const FromAgent& message);
};

}  // namespace regroup::rendezvous
