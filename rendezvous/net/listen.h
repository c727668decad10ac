// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "rendezvous/base/result.h"

namespace regroup::net {

/// A TCP socket that listens on `port` of `address`, a numeric IPv4 or IPv6 address. An empty
/// address means every one of this machine, IPv6 and IPv4 alike, or IPv4 alone where there is no
/// IPv6. Port 0 lets the kernel choose one; `local_endpoint()` of the result tells which. The
/// socket is not inherited by programs that this process starts.
///
/// Fails with `invalid_argument` when `address` is no address, and with `system` otherwise. A taken
/// port is reported with its holder, as "port 29500 is taken by pid 4711 (python3 train.py)": no
/// full stop, so that the caller can add what to do about it.
Result<boost::asio::ip::tcp::acceptor> listen_on(boost::asio::io_context& io,
                                                 const std::string& address, std::uint16_t port);

}  // namespace regroup::net
