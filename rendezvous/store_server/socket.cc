// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store_server/socket.h"

#include <cstring>
#include <sys/socket.h>

#include "rendezvous/net/address.h"

namespace regroup::store {

using boost::asio::ip::tcp;

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

}  // namespace regroup::store
