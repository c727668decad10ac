// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace regroup::testing {

/// Breaks the TCP connections of this process at both ends, as a failing network does. It leaves
/// alone inherited ones (not close-on-exec), and those from or to `spared_port`.
inline void sever_connections(std::uint16_t spared_port = 0) {
    constexpr int kDescriptors = 1024;
    const auto is_spared = [&](const sockaddr_storage& address) {
        if (address.ss_family == AF_INET6) {
            return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port) == spared_port;
        }
        return address.ss_family != AF_INET ||
               ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port) == spared_port;
    };
    for (int fd = 0; fd < kDescriptors; ++fd) {
        sockaddr_storage mine{};
        sockaddr_storage theirs{};
        socklen_t mine_size = sizeof mine;
        socklen_t theirs_size = sizeof theirs;
        if (::getsockname(fd, reinterpret_cast<sockaddr*>(&mine), &mine_size) == 0 &&
            ::getpeername(fd, reinterpret_cast<sockaddr*>(&theirs), &theirs_size) == 0 &&
            !is_spared(mine) && !is_spared(theirs) && (::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0) {
            ::shutdown(fd, SHUT_RDWR);
        }
    }
}

}  // namespace regroup::testing
