// SPDX-License-Identifier: Apache-2.0
#include "agent/snapshot/entrance.h"

#include <algorithm>
#include <fcntl.h>
#include <iterator>
#include <sys/socket.h>

namespace regroup::agent {

Entrance::Visit::Visit(Entrance& entrance, int socket) : entrance_(entrance) {
    const std::lock_guard lock(entrance_.mutex_);
    entrance_.sockets_.emplace_back(::fcntl(socket, F_DUPFD_CLOEXEC, 0));
    place_ = std::prev(entrance_.sockets_.end());
    std::size_t surplus =
        entrance_.sockets_.size() - std::min(entrance_.sockets_.size(), entrance_.most_);
    for (auto oldest = entrance_.sockets_.begin(); surplus > 0; ++oldest, --surplus) {
        ::shutdown(oldest->get(), SHUT_RDWR);  // Its thread ends the visit.
    }
}

Entrance::Visit::~Visit() {
    const std::lock_guard lock(entrance_.mutex_);
    entrance_.sockets_.erase(place_);
}

}  // namespace regroup::agent
