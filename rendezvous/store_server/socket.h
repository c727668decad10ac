// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/ip/tcp.hpp>

namespace regroup::store {

enum class End { ours, theirs };
/// The address of one end. An IPv4 address stays IPv4 also on a dual-stack socket. Port 0: unknown.
[[nodiscard]] boost::asio::ip::tcp::endpoint endpoint_of(int fd, End end);

}  // namespace regroup::store
