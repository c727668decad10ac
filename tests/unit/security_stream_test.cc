// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <openssl/ssl.h>
#include <string>
#include <vector>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <gtest/gtest.h>

#include "rendezvous/security/stream.h"
#include "rendezvous/security/tls.h"

namespace regroup::security {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

/// Reads `all` bytes. `received_by_turn`: how many there were when another handler, which waited
/// since the first of them, had its turn.
asio::awaitable<void> read(Stream& stream, std::size_t all, std::size_t& received,
                           std::size_t& received_by_turn) {
    std::vector<char> buffer(256);
    while (received < all) {
        const auto [error, count] = co_await stream.read_some(asio::buffer(buffer));
        if (error) {
            co_return;
        }
        if (received == 0) {
            asio::post(stream.socket().get_executor(),
                       [&received, &received_by_turn] { received_by_turn = received; });
        }
        received += count;
    }
}

/// Two ends of a connection that have shaken hands.
class SecurityStream : public ::testing::Test {
   protected:
    SecurityStream() {
        const Key key = Key::random();
        const auto shake = [](Stream& stream, Ssl ssl) -> asio::awaitable<void> {
            EXPECT_TRUE(co_await stream.shake_hands(std::move(ssl)));
        };
        asio::co_spawn(io, shake(server, Tls::server(key, "test").connection()), asio::detached);
        asio::co_spawn(io, shake(client, Tls::client(key, "test").connection()), asio::detached);
        io.run();
        io.restart();
    }

    tcp::socket connected() {
        tcp::socket socket(io);
        socket.connect(acceptor.local_endpoint());
        return socket;
    }
    void write(const std::string& bytes) {
        const auto write = [](Stream& stream, const std::string& all) -> asio::awaitable<void> {
            const auto [error, count] = co_await stream.write(asio::buffer(all));
            EXPECT_FALSE(error);
        };
        asio::co_spawn(io, write(client, bytes), asio::detached);
        io.run();
        io.restart();
    }

    asio::io_context io{1};
    tcp::acceptor acceptor{io, tcp::endpoint(asio::ip::make_address("127.0.0.1"), 0)};
    Stream client{connected()};
    Stream server{acceptor.accept()};
};

TEST_F(SecurityStream, PeerThatSendsWithoutPauseLeavesOthersTheirTurn) {
    const std::string bytes(std::size_t{16} << 10U, 'x');
    write(bytes);

    std::size_t received = 0;
    std::size_t received_by_turn = bytes.size();
    asio::co_spawn(io, read(server, bytes.size(), received, received_by_turn), asio::detached);
    io.run();
    EXPECT_EQ(received, bytes.size());
    EXPECT_LT(received_by_turn, bytes.size());
}

TEST_F(SecurityStream, PeerThatChangesItsKeyWithoutPauseLeavesOthersTheirTurn) {
    constexpr int kUpdates = 1000;
    for (int i = 0; i < kUpdates; ++i) {
        ASSERT_EQ(SSL_key_update(client.ssl().get(), SSL_KEY_UPDATE_NOT_REQUESTED), 1);
        ASSERT_EQ(SSL_do_handshake(client.ssl().get()), 1);
    }
    write("x");

    int turns = 0;
    std::size_t received = 0;
    std::size_t unused = 0;
    const std::function<void()> take_turns = [&] {
        ++turns;
        if (received == 0) {
            asio::post(io, take_turns);
        }
    };
    asio::post(io, take_turns);
    asio::co_spawn(io, read(server, 1, received, unused), asio::detached);
    io.run();
    EXPECT_EQ(received, 1U);
    EXPECT_GE(turns, kUpdates / 2);
}

}  // namespace
}  // namespace regroup::security
