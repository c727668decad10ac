// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store/peer_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string_view>
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

}  // namespace regroup::store
