// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>

namespace regroup::net {

struct PortHolder {
    pid_t pid = 0;
    std::string command;  ///< Its arguments, shortened for one line; printable characters only.
};

/// The process that holds TCP `port` of `address`, a numeric IPv4 or IPv6 address, or empty for
/// all addresses. Searches /proc, which shows a user only its own processes; nullopt when no holder
/// is visible. Reads the descriptors of every process: use it for error messages only.
[[nodiscard]] std::optional<PortHolder> find_port_holder(const std::string& address,
                                                         std::uint16_t port);

/// True if only ended connections hold that port: the kernel keeps their local ports for a minute,
/// unless their program allowed reuse.
[[nodiscard]] bool is_kept_by_ended_connection(const std::string& address, std::uint16_t port);

}  // namespace regroup::net
