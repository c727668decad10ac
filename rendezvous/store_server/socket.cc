// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store_server/socket.h"

#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sstream>
#include <sys/socket.h>

#include "rendezvous/net/address.h"

namespace regroup::store {

using boost::asio::ip::tcp;

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

tcp::endpoint endpoint_of(int fd, End end) {
    tcp::endpoint endpoint;
    sockaddr_storage storage{};
    socklen_t bytes = sizeof storage;
    auto* address = reinterpret_cast<sockaddr*>(&storage);
    const int result =
        end == End::ours ? ::getsockname(fd, address, &bytes) : ::getpeername(fd, address, &bytes);
    if (result != 0 || bytes > endpoint.capacity()) {
        return {};
    }
    std::memcpy(endpoint.data(), &storage, bytes);
    endpoint.resize(bytes);
    endpoint.address(net::plain(endpoint.address()));
    return endpoint;
}

std::string describe_peer(int fd) {
    const tcp::endpoint peer = endpoint_of(fd, End::theirs);
    if (peer.port() == 0) {
        return "a disconnected client";
    }
    std::ostringstream text;
    text << peer;
    return text.str();
}

}  // namespace regroup::store
