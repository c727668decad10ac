// SPDX-License-Identifier: Apache-2.0
#include "agent/snapshot/open_sockets.h"

#include <sys/socket.h>

namespace regroup::agent {

OpenSockets::Entry::Entry(OpenSockets& sockets, int fd) : sockets_(sockets), fd_(fd) {
    const std::lock_guard lock(sockets_.mutex_);
    sockets_.fds_.insert(fd);
    if (sockets_.stopped_) {
        ::shutdown(fd, SHUT_RDWR);
    }
}

OpenSockets::Entry::~Entry() {
    const std::lock_guard lock(sockets_.mutex_);
    sockets_.fds_.erase(sockets_.fds_.find(fd_));
}

void OpenSockets::shut_down_locked() {
    for (const int fd : fds_) {
        ::shutdown(fd, SHUT_RDWR);
    }
}

void OpenSockets::interrupt() {
    const std::lock_guard lock(mutex_);
    shut_down_locked();
}

void OpenSockets::stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    shut_down_locked();
    stopping_.notify_all();
}

bool OpenSockets::is_stopped() const {
    const std::lock_guard lock(mutex_);
    return stopped_;
}

bool OpenSockets::await_stop(Duration limit) const {
    std::unique_lock lock(mutex_);
    return stopping_.wait_for(lock, limit, [this] { return stopped_; });
}

}  // namespace regroup::agent
