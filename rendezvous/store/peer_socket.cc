// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store/peer_socket.h"

#include <cerrno>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace regroup::store {

void prepare_socket(int fd) {
    const auto set = [fd](int level, int option, int value) {
        ::setsockopt(fd, level, option, &value, sizeof value);
    };
    set(IPPROTO_TCP, TCP_NODELAY, 1);
    // A client may wait silently without limit. Keepalive detects a dead host within two minutes.
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
    set(IPPROTO_TCP, TCP_KEEPIDLE, 60);
    set(IPPROTO_TCP, TCP_KEEPINTVL, 10);
    set(IPPROTO_TCP, TCP_KEEPCNT, 6);
}

std::string describe_peer(int fd) {
    sockaddr_storage storage{};
    socklen_t bytes = sizeof storage;
    auto* const address = reinterpret_cast<sockaddr*>(&storage);
    char host[NI_MAXHOST];
    char port[NI_MAXSERV];
    if (::getpeername(fd, address, &bytes) != 0 ||
        ::getnameinfo(address, bytes, host, sizeof host, port, sizeof port,
                      NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        return "a disconnected client";
    }
    constexpr std::string_view kMapped = "::ffff:";
    std::string_view shown = host;
    if (shown.starts_with(kMapped) && shown.find('.') != std::string_view::npos) {
        shown.remove_prefix(kMapped.size());
    }
    const bool is_v6 = shown.find(':') != std::string_view::npos;
    return (is_v6 ? "[" + std::string(shown) + "]" : std::string(shown)) + ":" + port;
}

ssize_t send_some(int fd, std::string_view bytes) {
    ssize_t count = 0;
    do {
        count = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    } while (count < 0 && errno == EINTR);
    return count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? 0 : count;
}

ssize_t receive_some(int fd, char* buffer, std::size_t size) {
    const ssize_t count = ::recv(fd, buffer, size, 0);
    const bool is_later = count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
    return is_later ? 0 : count == 0 ? -1 : count;
}

void Outbox::drop_sent(std::size_t count) {
    constexpr std::size_t kKeptBytes = 64 * 1024;
    sent_bytes += count;
    if (sent_bytes == bytes.size()) {
        bytes.clear();
        sent_bytes = 0;
        if (bytes.capacity() > kKeptBytes) {
            bytes.shrink_to_fit();
        }
    } else if (sent_bytes > unsent().size()) {
        // The rest is moved only when it is the smaller part.
        bytes.erase(0, sent_bytes);
        sent_bytes = 0;
    }
}

}  // namespace regroup::store
