// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace regroup::net {

/// The network interface by which this machine reaches `address` (numeric), as the kernel routes
/// now; for an address of its own, the interface that has it. Nothing is sent. Empty for loopback,
/// and when the kernel cannot tell.
[[nodiscard]] std::string interface_towards(const std::string& address);

}  // namespace regroup::net
