// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "rendezvous/base/result.h"

namespace regroup::launcher {

/// The listening TCP socket that systemd, or another program that holds it, has passed to this
/// process (socket activation: LISTEN_PID, LISTEN_FDS, descriptors from 3 on). Nothing if none is
/// for this process. Programs that this process starts inherit neither the variables nor the
/// descriptors. Call it before this process has a thread.
///
/// Errors: invalid_argument for more than one socket and for one on which no TCP connection can be
/// accepted. It names the line of the socket unit to change.
[[nodiscard]] Result<std::optional<boost::asio::ip::tcp::acceptor>> take_passed_socket(
    boost::asio::io_context& io);

}  // namespace regroup::launcher
