// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace regroup::net {

/// The network interface through which the kernel now routes to `address` (numeric); for an address
/// of this machine, the interface that has it. Sends nothing. Empty for loopback, and when the
/// kernel does not know.
[[nodiscard]] std::string interface_towards(const std::string& address);

}  // namespace regroup::net
