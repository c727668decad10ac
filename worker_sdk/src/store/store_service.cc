// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/store/store_service.h"

#include <regroup/error.h>

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <iterator>
#include <memory>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <utility>
#include <vector>

#include "worker_sdk/src/base/helper_thread.h"
#include "worker_sdk/src/net/socket.h"

namespace regroup {
namespace {

using net::SocketAddress;

constexpr std::size_t kClientsPerRank = 16;
/// The most sockets accepted in a row, so that clients get their turn.
constexpr int kAcceptsPerTurn = 64;
/// How long accepting pauses when descriptors or memory have run out.
constexpr int kShortagePauseMs = 100;

/// The addresses to listen on: the first whose family this machine has. A host name is not looked
/// up, since a machine may know its own name as a loopback address that others know as another.
std::vector<SocketAddress> addresses_for(const std::string& host) {
    in_addr v4{};
    in6_addr v6{};
    if (::inet_pton(AF_INET, host.c_str(), &v4) == 1 && ntohl(v4.s_addr) >> 24U == 127) {
        return {SocketAddress::parse(host + ":0")};
    }
    if (::inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6)) {
        return {SocketAddress::parse("[::1]:0")};
    }
    if (host == "localhost") {
        return {SocketAddress::parse("127.0.0.1:0"), SocketAddress::parse("[::1]:0")};
    }
    return {SocketAddress::parse("[::]:0"), SocketAddress::parse("0.0.0.0:0")};
}

/// Returns no descriptor, and sets `error_number`, on failure.
UniqueFd try_listen(const SocketAddress& address, int& error_number) {
    UniqueFd socket(
        ::socket(address.get()->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket) {
        error_number = errno;
        return socket;
    }
    const int off = 0;
    const int on = 1;
    ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    // Connections of a previous job may still linger on this port.
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(socket.get(), address.get(), address.bytes()) != 0 ||
        ::listen(socket.get(), SOMAXCONN) != 0) {
        error_number = errno;
        socket.reset();
    }
    return socket;
}

UniqueFd listen_for(const std::string& host, std::uint16_t port) {
    int error_number = 0;
    for (const SocketAddress& address : addresses_for(host)) {
        UniqueFd socket = try_listen(address.with_port(port), error_number);
        if (socket) {
            return socket;
        }
        if (error_number != EADDRNOTAVAIL && error_number != EAFNOSUPPORT) {
            break;
        }
    }
    throw Error(Errc::system, system_failure("rank 0 cannot serve the store on port " +
                                                 std::to_string(port) + ", which MASTER_PORT names",
                                             error_number)
                                  .detail);
}

std::uint16_t port_of(const UniqueFd& socket) {
    const SocketAddress address = net::bound_address(socket);
    // Both families keep the port in the same place.
    return ntohs(reinterpret_cast<const sockaddr_in*>(address.get())->sin_port);
}

}  // namespace

StoreService::StoreService(const std::string& host, std::uint16_t port, const store::Limits& limits)
    : listener_(listen_for(host, port)),
      listener_guard_(listener_.get()),
      wakeup_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      port_(port_of(listener_)),
      engine_({.limits = limits}) {
    if (!wakeup_) {
        throw Error(Errc::system, system_failure("eventfd", errno).detail);
    }
    thread_ = start_helper_thread("regroup-store", [this] { run(); });
}

StoreService::~StoreService() {
    stopping_ = true;
    ::eventfd_write(wakeup_.get(), 1);
    thread_.join();
}

store::Limits StoreService::limits_of(std::uint32_t world_size) {
    store::Limits limits;
    limits.clients_max = kClientsPerRank * world_size;
    // All ranks may get one large value at the same time.
    limits.clients_bytes_max =
        std::clamp(2 * limits.value_bytes_max * world_size, limits.clients_bytes_max,
                   std::max(limits.clients_bytes_max, limits.total_bytes_max));
    return limits;
}

void StoreService::run() {
    bool may_accept = true;
    while (!stopping_) {
        // poll() ignores a negative descriptor.
        pollfd entries[] = {{wakeup_.get(), POLLIN, 0},
                            {may_accept ? listener_.get() : -1, POLLIN, 0},
                            {engine_.ready_fd(), POLLIN, 0}};
        ::poll(entries, std::size(entries), may_accept ? -1 : kShortagePauseMs);
        // First those who leave, who make room.
        if (entries[2].revents != 0) {
            engine_.serve_ready();
        }
        may_accept = accept_some();
    }
}

/// False when descriptors or memory have run out.
bool StoreService::accept_some() {
    for (int i = 0; i < kAcceptsPerTurn; ++i) {
        UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (socket) {
            auto guard = std::make_shared<net::ForkGuard>(socket.get());
            engine_.admit({std::move(socket), std::move(guard)});
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return true;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return false;
        }
    }
    return true;
}

}  // namespace regroup
