// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/worker_link/packet.h"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <sys/socket.h>

namespace regroup::worker_link {

bool send_packet(int socket, std::string_view packet, WhenFull when_full, int descriptor) noexcept {
    iovec part{const_cast<char*>(packet.data()), packet.size()};
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    if (descriptor >= 0) {
        header.msg_control = control.data();
        header.msg_controllen = control.size();
        cmsghdr* const rider = CMSG_FIRSTHDR(&header);
        rider->cmsg_level = SOL_SOCKET;
        rider->cmsg_type = SCM_RIGHTS;
        rider->cmsg_len = CMSG_LEN(sizeof descriptor);
        std::memcpy(CMSG_DATA(rider), &descriptor, sizeof descriptor);
    }
    const int flags = MSG_NOSIGNAL | (when_full == WhenFull::fail ? MSG_DONTWAIT : 0);
    ssize_t sent = 0;
    do {
        sent = ::sendmsg(socket, &header, flags);
    } while (sent < 0 && errno == EINTR);
    return sent >= 0;
}

}  // namespace regroup::worker_link
