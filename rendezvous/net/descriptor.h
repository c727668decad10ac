// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>

namespace regroup::net {

/// Prevents that programs started by this process inherit `fd`. Asio's sockets are inherited by
/// default, and a worker that inherits the agent's listening port would block it after the agent
/// has ended.
inline void set_close_on_exec(int fd) noexcept {
    const int flags = ::fcntl(fd, F_GETFD);
    if (flags >= 0) {
        ::fcntl(fd, F_SETFD, flags | FD_CLOEXEC);
    }
}

}  // namespace regroup::net
