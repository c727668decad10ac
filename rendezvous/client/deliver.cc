// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/client/deliver.h"

#include <array>
#include <optional>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "rendezvous/client/check_daemon.h"
#include "rendezvous/security/stream.h"

namespace regroup::rendezvous {

namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

asio::awaitable<void> send(security::Stream& stream, tcp::endpoint daemon, const std::string& name,
                           std::string_view frames, const security::Identity& identity) {
    std::optional<security::Tls> tls;
    const auto [error] =
        co_await stream.socket().async_connect(daemon, asio::as_tuple(asio::use_awaitable));
    if (error) {
        co_return;
    }
    const Result<void> believed = co_await check_daemon(stream, name, identity, tls);
    if (!believed) {
        co_return;
    }
    const auto [write_error, count] = co_await stream.write(asio::buffer(frames));
    if (write_error) {
        co_return;
    }
    boost::system::error_code ignored;
    stream.socket().shutdown(tcp::socket::shutdown_send, ignored);
    // Wait until it was read: closing a connection with unread input would discard the bytes.
    std::array<char, 4096> answer{};
    for (;;) {
        const auto [read_error, bytes] = co_await stream.read_some(asio::buffer(answer));
        if (read_error) {
            co_return;
        }
    }
}

}  // namespace

void deliver(const Endpoint& daemon, const std::string& name, std::string_view frames,
             const security::Identity& identity, Duration limit) {
    boost::system::error_code error;
    const auto address = asio::ip::make_address(daemon.host, error);
    if (error) {
        return;
    }
    asio::io_context io(1);
    security::Stream stream{tcp::socket(io)};
    asio::co_spawn(io, send(stream, {address, daemon.port}, name, frames, identity),
                   asio::detached);
    io.run_for(limit);
    // Ends the coroutine before what it refers to.
    stream.close();
    io.run_for(limit);
}

}  // namespace regroup::rendezvous
