// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>

namespace regroup::net {

struct PortHolder {
    uid_t user = 0;
    pid_t pid = 0;        ///< 0 for a process of another user, which this one cannot see.
    std::string command;  ///< Its arguments, shortened for one line; printable characters only.
};

/// The process that holds TCP `port` of `address`, a numeric IPv4 or IPv6 address, or empty for
/// all addresses. Searches /proc, which shows a user only the descriptors of its own processes;
/// nullopt when there is no holder in this network namespace. Reads the descriptors of every
/// process: use it for error messages only.
[[nodiscard]] std::optional<PortHolder> find_port_holder(const std::string& address,
                                                         std::uint16_t port);

/// True if only ended connections hold that port: the kernel keeps their local ports for a minute,
/// unless their program allowed reuse.
[[nodiscard]] bool is_kept_by_ended_connection(const std::string& address, std::uint16_t port);

}  // namespace regroup::net
