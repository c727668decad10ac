// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "rendezvous/base/result.h"

namespace regroup::net {

/// A TCP socket that listens on `port` of `address`, a numeric IPv4 or IPv6 address. An empty
/// address means all addresses of this machine, IPv6 and IPv4, or only IPv4 where there is no IPv6.
/// With port 0 the kernel chooses one; `local_endpoint()` of the result returns it. Programs that
/// this process starts do not inherit the socket.
///
/// Fails with `invalid_argument` when `address` is no address, and with `system` otherwise. A taken
/// port is reported with its holder, as "port 29500 is taken by pid 4711 (python3 train.py)",
/// without a full stop, so that the caller can add advice.
Result<boost::asio::ip::tcp::acceptor> listen_on(boost::asio::io_context& io,
                                                 const std::string& address, std::uint16_t port);

/// As `listen_on` for all addresses, but reached by programs of this machine only, under any of its
/// addresses. Where the kernel does not allow that to a user (before Linux 5.7), other machines may
/// connect as well: look at the peer of each connection.
Result<boost::asio::ip::tcp::acceptor> listen_within_host(boost::asio::io_context& io,
                                                          std::uint16_t port);

/// As `listen_on` 127.0.0.1, or ::1 where there is no IPv4.
Result<boost::asio::ip::tcp::acceptor> listen_on_loopback(boost::asio::io_context& io,
                                                          std::uint16_t port);

}  // namespace regroup::net
