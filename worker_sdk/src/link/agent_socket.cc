// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/link/agent_socket.h"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "rendezvous/worker_link/messages.h"

namespace regroup::link {
namespace {

std::optional<ucred> peer_of(const UniqueFd& socket) noexcept {
    ucred peer{};
    socklen_t bytes = sizeof peer;
    return ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0
               ? std::optional(peer)
               : std::nullopt;
}

}  // namespace

Result<UniqueFd> dial_agent(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.empty() || path.size() >= sizeof address.sun_path) {
        std::string problem = worker_link::kSocketVariable;
        problem.append("=\"").append(path).append("\" is no path of a local socket");
        return Failure(Errc::invalid_argument, problem);
    }
    path.copy(address.sun_path, path.size());
    // In the abstract namespace every byte counts, so the name ends where its last letter does.
    auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
    if (path.front() == '@') {
        address.sun_path[0] = '\0';
    } else {
        ++bytes;
    }
    UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (!socket) {
        return system_failure("socket to the agent", errno);
    }
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), bytes) != 0) {
        return Failure(Errc::disconnected,
                       system_failure("no agent listens at " + path, errno).detail);
    }
    // Anyone can listen at the name of an agent that has ended.
    if (const auto peer = peer_of(socket); !peer || peer->uid != ::geteuid()) {
        return Failure(Errc::disconnected,
                       "the process that listens at " + path + " is not of this user");
    }
    return socket;
}

pid_t peer_pid(const UniqueFd& socket) noexcept {
    return peer_of(socket).value_or(ucred{}).pid;
}

Packet receive_packet(const UniqueFd& socket) {
    Packet packet{.text = std::string(worker_link::kMessageLimit, '\0'), .descriptor = UniqueFd()};
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
    iovec part{packet.text.data(), packet.text.size()};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    ssize_t count = 0;
    do {
        count = ::recvmsg(socket.get(), &header, MSG_CMSG_CLOEXEC);
        // ECONNRESET: the agent ended with unread messages. Its earlier messages are still there.
    } while (count < 0 && (errno == EINTR || errno == ECONNRESET));
    packet.text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    for (cmsghdr* rider = CMSG_FIRSTHDR(&header); count > 0 && rider != nullptr;
         rider = CMSG_NXTHDR(&header, rider)) {
        if (rider->cmsg_level == SOL_SOCKET && rider->cmsg_type == SCM_RIGHTS) {
            int descriptor = -1;
            std::memcpy(&descriptor, CMSG_DATA(rider), sizeof descriptor);
            packet.descriptor = UniqueFd(descriptor);
        }
    }
    return packet;
}

}  // namespace regroup::link
