// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <boost/asio/ip/tcp.hpp>

namespace regroup::store {

/// Makes a connected socket what a store's connection should be. Failures are those of a connection
/// that has broken already, and show when it is read.
void prepare_socket(int fd);

enum class End { ours, theirs };
/// An IPv4 address as such also where the socket takes both kinds. Port 0 when there is none.
[[nodiscard]] boost::asio::ip::tcp::endpoint endpoint_of(int fd, End end);
/// "10.0.0.1:1234".
[[nodiscard]] std::string describe_peer(int fd);

}  // namespace regroup::store
