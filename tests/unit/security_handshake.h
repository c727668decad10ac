// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "rendezvous/security/stream.h"
#include "rendezvous/security/tls.h"

namespace regroup::security {

/// A client and a server that shake hands over loopback.
class Handshake {
   public:
    Handshake(const Tls& server, const Tls& client, const std::string& host = "localhost")
        : acceptor_(io_,
                    boost::asio::ip::tcp::endpoint(boost::asio::ip::make_address("127.0.0.1"), 0)) {
        boost::asio::ip::tcp::socket socket(io_);
        socket.connect(acceptor_.local_endpoint());
        client_.emplace(std::move(socket));
        server_.emplace(acceptor_.accept());
        spawn(*client_, client.connection(host), client_result_);
        spawn(*server_, server.connection(), server_result_);
        io_.run();
        io_.restart();
    }

    [[nodiscard]] bool client_accepts() const { return client_result_ && *client_result_; }
    [[nodiscard]] bool server_accepts() const { return server_result_ && *server_result_; }
    [[nodiscard]] std::string client_error() const { return client_result_->error().detail; }
    [[nodiscard]] std::string errors() const {
        return (client_accepts() ? "" : client_result_->error().detail) + " | " +
               (server_accepts() ? "" : server_result_->error().detail);
    }
    [[nodiscard]] Result<Peer> peer() const { return Tls::peer_of(server_->ssl()); }

    /// Sends `text` from the client to the server, and returns what arrives.
    std::string pass(const std::string& text) {
        std::string arrived;
        boost::asio::co_spawn(io_, send(*client_, text), boost::asio::detached);
        boost::asio::co_spawn(io_, receive(*server_, arrived), boost::asio::detached);
        io_.run();
        return arrived;
    }

    /// Why the server has ended the connection after the client's part of the handshake was done.
    std::string refusal_for_client() {
        std::string arrived;
        boost::asio::co_spawn(io_, receive(*client_, arrived), boost::asio::detached);
        io_.run();
        return client_->refusal();
    }

   private:
    static boost::asio::awaitable<void> send(Stream& stream, const std::string& text) {
        co_await stream.write(boost::asio::buffer(text));
        stream.close();
    }

    static boost::asio::awaitable<void> receive(Stream& stream, std::string& arrived) {
        std::vector<char> buffer(10000);
        for (;;) {
            const auto [error, count] = co_await stream.read_some(boost::asio::buffer(buffer));
            if (error) {
                co_return;
            }
            arrived.append(buffer.data(), count);
        }
    }

    static boost::asio::awaitable<void> shake(Stream& stream, Ssl ssl,
                                              std::optional<Result<void>>& result) {
        result = co_await stream.shake_hands(std::move(ssl));
        if (!*result) {
            stream.close();
        }
    }

    void spawn(Stream& stream, Ssl ssl, std::optional<Result<void>>& result) {
        boost::asio::co_spawn(io_, shake(stream, std::move(ssl), result), boost::asio::detached);
    }

    boost::asio::io_context io_;
    boost::asio::ip::tcp::acceptor acceptor_;
    std::optional<Stream> client_;
    std::optional<Stream> server_;
    std::optional<Result<void>> client_result_;
    std::optional<Result<void>> server_result_;
};

}  // namespace regroup::security
