// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>

namespace regroup::net {

/// Keeps `fd` from programs that this process starts. Asio's sockets are inherited by default, and
/// a worker that holds the agent's listening port would keep it taken after the agent is gone.
inline void set_close_on_exec(int fd) noexcept {
    const int flags = ::fcntl(fd, F_GETFD);
    if (flags >= 0) {
        ::fcntl(fd, F_SETFD, flags | FD_CLOEXEC);
    }
}

}  // namespace regroup::net
