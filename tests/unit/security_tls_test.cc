// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

#include "rendezvous/security/stream.h"
#include "rendezvous/security/tls.h"

namespace regroup::security {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

/// A client and a server that shake hands over loopback.
class Handshake {
   public:
    Handshake(const Tls& server, const Tls& client)
        : acceptor_(io_, tcp::endpoint(asio::ip::make_address("127.0.0.1"), 0)) {
        tcp::socket socket(io_);
        socket.connect(acceptor_.local_endpoint());
        client_.emplace(std::move(socket));
        server_.emplace(acceptor_.accept());
        spawn(*client_, client.connection("localhost"), client_result_);
        spawn(*server_, server.connection(), server_result_);
        io_.run();
        io_.restart();
    }

    [[nodiscard]] bool client_accepts() const { return client_result_ && *client_result_; }
    [[nodiscard]] bool server_accepts() const { return server_result_ && *server_result_; }
    [[nodiscard]] std::string errors() const {
        return (client_accepts() ? "" : client_result_->error().detail) + " | " +
               (server_accepts() ? "" : server_result_->error().detail);
    }
    [[nodiscard]] Result<Peer> peer() const { return Tls::peer_of(server_->ssl()); }

    /// Sends `text` from the client to the server, and returns what arrives.
    std::string pass(const std::string& text) {
        std::string arrived;
        asio::co_spawn(
            io_,
            [&]() -> asio::awaitable<void> {
                co_await client_->write(asio::buffer(text));
                client_->close();
            },
            asio::detached);
        asio::co_spawn(
            io_,
            [&]() -> asio::awaitable<void> {
                std::vector<char> buffer(10000);
                for (;;) {
                    const auto [error, count] = co_await server_->read_some(asio::buffer(buffer));
                    if (error) {
                        co_return;
                    }
                    arrived.append(buffer.data(), count);
                }
            },
            asio::detached);
        io_.run();
        return arrived;
    }

   private:
    void spawn(Stream& stream, Ssl ssl, std::optional<Result<void>>& result) {
        asio::co_spawn(
            io_,
            [&stream, ssl = std::move(ssl), &result]() mutable -> asio::awaitable<void> {
                result = co_await stream.shake_hands(std::move(ssl));
                if (!*result) {
                    stream.close();
                }
            },
            asio::detached);
    }

    asio::io_context io_;
    tcp::acceptor acceptor_;
    std::optional<Stream> client_;
    std::optional<Stream> server_;
    std::optional<Result<void>> client_result_;
    std::optional<Result<void>> server_result_;
};

Credentials with(const Token& token) {
    Credentials credentials;
    credentials.token = token;
    return credentials;
}

Handshake between(const Token& server, const Token& client, const Scope& scope) {
    return {*Tls::server(with(server)), *Tls::client(with(client), scope)};
}

const Scope kNodeOfJob{Role::node, "nightly"};

TEST(SecurityTls, HoldersOfOneTokenAcceptEachOther) {
    const Token token = Token::generate();
    Handshake handshake = between(token, token, kNodeOfJob);
    ASSERT_TRUE(handshake.client_accepts());
    ASSERT_TRUE(handshake.server_accepts()) << handshake.errors();
    const Result<Peer> peer = handshake.peer();
    ASSERT_TRUE(peer);
    EXPECT_EQ(peer->scope, kNodeOfJob);
    const std::string text(300000, 'x');
    EXPECT_EQ(handshake.pass(text), text);
}

TEST(SecurityTls, LimitedTokenGivesItsOwnScopeWhateverTheClientWants) {
    const Token token = Token::generate();
    const Scope observer{Role::observer, "nightly"};
    const Handshake handshake = between(token, token.limited_to(observer), kNodeOfJob);
    ASSERT_TRUE(handshake.server_accepts()) << handshake.errors();
    EXPECT_EQ(handshake.peer()->scope, observer);
}

TEST(SecurityTls, LongJobNameIsKept) {
    const Token token = Token::generate();
    const Scope scope{Role::node, std::string(255, 'j')};
    const Handshake handshake = between(token, token, scope);
    ASSERT_TRUE(handshake.server_accepts()) << handshake.errors();
    EXPECT_EQ(handshake.peer()->scope, scope);
}

TEST(SecurityTls, AnotherTokenIsRefusedByBoth) {
    const Handshake handshake = between(Token::generate(), Token::generate(), kNodeOfJob);
    EXPECT_FALSE(handshake.client_accepts());
    EXPECT_FALSE(handshake.server_accepts());
}

TEST(SecurityTls, DaemonWithTheWrongKeyUnderTheRightNameIsRefused) {
    const Token token = Token::generate();
    std::string text = Token::generate().limited_to(kNodeOfJob).text();
    text.replace(text.find(".node.") + 6, 8, token.id());
    const Token forged = *Token::parse(text);
    const Handshake handshake = between(forged, token, kNodeOfJob);
    EXPECT_FALSE(handshake.client_accepts());
    EXPECT_FALSE(handshake.server_accepts());
}

TEST(SecurityTls, KeysOfOneRoundWorkForThatRoundOnly) {
    const Key key = Key::random();
    const Handshake same(Tls::server(key, "store, round 3"), Tls::client(key, "store, round 3"));
    EXPECT_TRUE(same.client_accepts());
    EXPECT_TRUE(same.server_accepts()) << same.errors();
    const Handshake older(Tls::server(key, "store, round 3"), Tls::client(key, "store, round 2"));
    EXPECT_FALSE(older.client_accepts());
    EXPECT_FALSE(older.server_accepts());
}

}  // namespace
}  // namespace regroup::security
