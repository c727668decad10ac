// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "rendezvous/client/endpoint.h"
#include "rendezvous/client/http_exchange.h"
#include "rendezvous/client/leader_connection.h"
#include "rendezvous/security/credentials.h"

namespace regroup::rendezvous {

/// Asks the daemon that leads by HTTP, one question at a time. When a daemon says that another one
/// leads, the client connects to that; the owner never sees that answer.
class HttpClient : public LeaderConnection {
   public:
    struct Handlers : LeaderConnection::Handlers {
        std::function<void(const HttpAnswer& answer)> on_answer;
        /// More of the body of a stream. May be empty.
        std::function<void(std::string_view text)> on_text{};
    };

    /// See LeaderConnection.
    HttpClient(boost::asio::io_context& io, std::vector<Endpoint> endpoints,
               const Handlers& handlers, security::Identity identity);

    /// "/api/v1/jobs?job=nightly". Does nothing without a connection.
    void get(const std::string& target);
};

}  // namespace regroup::rendezvous
