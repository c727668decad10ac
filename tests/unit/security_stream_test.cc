// SPDX-License-Identifier: Apache-2.0
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

TEST(SecurityStream, PeerThatSendsWithoutPauseLeavesOthersTheirTurn) {
    asio::io_context io(1);
    tcp::acceptor acceptor(io, tcp::endpoint(asio::ip::make_address("127.0.0.1"), 0));
    tcp::socket socket(io);
    socket.connect(acceptor.local_endpoint());
    Stream client(std::move(socket));
    Stream server(acceptor.accept());
    const Key key = Key::random();
    const std::string bytes(std::size_t{16} << 10U, 'x');

    const auto shake = [](Stream& stream, Ssl ssl) -> asio::awaitable<void> {
        EXPECT_TRUE(co_await stream.shake_hands(std::move(ssl)));
    };
    asio::co_spawn(io, shake(server, Tls::server(key, "test").connection()), asio::detached);
    asio::co_spawn(io, shake(client, Tls::client(key, "test").connection()), asio::detached);
    io.run();
    const auto write = [](Stream& stream, const std::string& all) -> asio::awaitable<void> {
        const auto [error, count] = co_await stream.write(asio::buffer(all));
        EXPECT_FALSE(error);
    };
    asio::co_spawn(io, write(client, bytes), asio::detached);
    io.restart();
    io.run();

    std::size_t received = 0;
    std::size_t received_by_turn = bytes.size();
    asio::co_spawn(io, read(server, bytes.size(), received, received_by_turn), asio::detached);
    io.restart();
    io.run();
    EXPECT_EQ(received, bytes.size());
    EXPECT_LT(received_by_turn, bytes.size());
}

}  // namespace
}  // namespace regroup::security
