// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <boost/asio/ip/tcp.hpp>

namespace regroup::store {

/// Sets the options of a connected socket for a store. Errors mean that the connection has broken
/// already; they show again when it is read.
void prepare_socket(int fd);

enum class End { ours, theirs };
/// The address of one end. An IPv4 address stays IPv4 also on a dual-stack socket. Port 0: unknown.
[[nodiscard]] boost::asio::ip::tcp::endpoint endpoint_of(int fd, End end);
/// "10.0.0.1:1234".
[[nodiscard]] std::string describe_peer(int fd);

}  // namespace regroup::store
