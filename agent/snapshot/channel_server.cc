// SPDX-License-Identifier: Apache-2.0
#include "agent/snapshot/channel_server.h"

#include <array>
#include <cerrno>
#include <memory>
#include <string_view>
#include <sys/socket.h>
#include <sys/time.h>
#include <utility>

#include "rendezvous/worker_link/packet.h"

namespace regroup::agent {

namespace {

// A worker that reads no answers loses its channel.
constexpr timeval kSendLimit{10, 0};

}  // namespace

Result<UniqueFd> ChannelServer::open() {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
        return system_failure("a socket for snapshots", errno);
    }
    auto ours = std::make_shared<UniqueFd>(ends[0]);
    UniqueFd theirs(ends[1]);
    ::setsockopt(ours->get(), SOL_SOCKET, SO_SNDTIMEO, &kSendLimit, sizeof kSendLimit);
    Result<void> started = threads_.start([this, ours] {
        serve(ours->get());
        ours->reset();
    });
    if (!started) {
        return started.error();
    }
    return theirs;
}

void ChannelServer::serve(int socket) {
    const OpenSockets::Entry entry(sockets_, socket);
    std::array<char, snapshot::kPacketBytesMax> packet;  // NOLINT(*-member-init)
    for (;;) {
        const ssize_t count = ::recv(socket, packet.data(), packet.size(), MSG_TRUNC);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            return;
        }
        const auto length = static_cast<std::size_t>(count);
        const Result<snapshot::Ask> ask =
            length <= packet.size()
                ? snapshot::decode_ask(std::string_view(packet.data(), length))
                : Result<snapshot::Ask>(invalid_argument("the message is too long"));
        Reply reply;
        if (ask) {
            reply = handler_(*ask);
        } else {
            reply.answer.error = ask.error().detail;
        }
        if (!worker_link::send_packet(socket, snapshot::encode(reply.answer),
                                      worker_link::WhenFull::wait, reply.file.get())) {
            return;
        }
    }
}

}  // namespace regroup::agent
