// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/client/http_client.h"
#include "rendezvous/security/credentials.h"

namespace regroup::launcher::top {

/// Asks a daemon for its status again and again, on one connection as long as that lasts. Finds the
/// next daemon when one has ended. Everything runs on the io_context's one thread.
class Follower {
   public:
    struct Handlers {
        std::function<void(const std::string& json_text)> status;
        /// The daemon has answered, and gives no status.
        std::function<void(const std::string& why)> refusal;
        /// No daemon answers now.
        std::function<void(const std::string& why)> trouble;
    };

    /// Asks for `job`, or for all jobs if it is empty, every `interval` of at most a minute. `io`
    /// outlives the follower.
    Follower(boost::asio::io_context& io, const std::vector<rendezvous::Endpoint>& endpoints,
             std::string job, Duration interval, security::Identity identity, Handlers handlers);

    void start() { client_.start(); }
    /// No handler is called after this. `done`: when the connection is closed.
    void stop(std::function<void()> done);

   private:
    [[nodiscard]] rendezvous::HttpClient::Handlers client_handlers();
    /// Now, or when the interval is over.
    void ask_when_due();
    void ask();
    void receive(const rendezvous::HttpAnswer& answer);

    const std::string job_;
    const Duration interval_;
    const Handlers handlers_;
    bool up_ = false;
    Instant due_{};
    boost::asio::steady_timer timer_;
    rendezvous::HttpClient client_;
};

}  // namespace regroup::launcher::top
