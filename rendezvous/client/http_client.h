// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "rendezvous/client/endpoint.h"
#include "rendezvous/client/leader_connection.h"

namespace regroup::rendezvous {

/// An answer of the daemon.
struct HttpAnswer {
    int status = 0;
    std::map<std::string, std::string> fields{};  ///< By name in lower case.
    std::string body{};                           ///< Empty for a stream.
    /// The body has no length: it comes as on_text, until the connection ends.
    bool is_stream = false;
};

/// Reads answers to GETs, which come one after the other on a connection. Pure.
class HttpAnswerReader {
   public:
    /// A longer body is an error: no daemon sends it.
    static constexpr std::size_t kBodyBytesMax = std::size_t{64} << 20U;

    void feed(std::string_view bytes) { rest_.append(bytes); }
    /// The next whole answer; nothing while more bytes are needed. Errors: invalid_argument, it is
    /// no answer of a daemon.
    [[nodiscard]] Result<std::optional<HttpAnswer>> next();
    /// After the head of a stream: what has come of its body.
    [[nodiscard]] std::string take_text() { return std::exchange(rest_, {}); }

   private:
    std::string rest_;
};

/// A part of a target, with percent escapes where they are needed.
[[nodiscard]] std::string escaped(std::string_view text);

/// Asks the daemon that leads by HTTP, one question at a time: a LeaderConnection that speaks HTTP.
/// When a daemon says that another one leads, the client connects to that; the owner never sees
/// that answer.
class HttpClient {
   public:
    struct Handlers {
        std::function<void()> on_up;
        std::function<void()> on_down;
        std::function<void(const HttpAnswer& answer)> on_answer;
        /// More of the body of a stream. May be empty.
        std::function<void(std::string_view text)> on_text{};
        /// See LeaderConnection::Handlers.
        std::function<void(const std::string& reason, bool answered)> on_trouble;
    };

    /// See LeaderConnection.
    HttpClient(boost::asio::io_context& io, std::vector<Endpoint> endpoints, Handlers handlers,
               security::Identity identity);
    ~HttpClient();
    HttpClient(const HttpClient&) = delete;
    HttpClient& operator=(const HttpClient&) = delete;

    void start();
    /// "/api/v1/jobs?job=nightly". Does nothing without a connection.
    void get(const std::string& target);
    void drop();
    void stop(Duration limit, std::function<void()> done);
    [[nodiscard]] const std::string& peer() const;

   private:
    struct Impl;
    std::shared_ptr<Impl> impl_;
};

}  // namespace regroup::rendezvous
