// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace regroup::store {

/// Sets the options of a connected socket for a store. Errors mean that the connection has broken
/// already; they show again when it is read.
void prepare_socket(int fd);

/// "10.0.0.1:1234", "[fe80::1%eth0]:1234". An IPv4 address stays IPv4 also on a dual-stack socket.
[[nodiscard]] std::string describe_peer(int fd);

}  // namespace regroup::store
