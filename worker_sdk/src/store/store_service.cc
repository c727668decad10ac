// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/store/store_service.h"

#include <regroup/error.h>

#include <arpa/inet.h>
#include <cerrno>
#include <netinet/in.h>
#include <span>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>

#include "rendezvous/base/clock.h"
#include "rendezvous/store/store_dispatch.h"
#include "worker_sdk/src/base/helper_thread.h"

namespace regroup {
namespace {

using net::Descriptor;

constexpr std::size_t kReadBytes = std::size_t{64} << 10U;
/// How long the service accepts no connection when descriptors have run out.
constexpr Duration kAcceptRest = std::chrono::milliseconds(100);

/// Listens on all IPv6 and IPv4 addresses, or on all IPv4 ones where there is no IPv6.
Descriptor listen_everywhere(std::uint16_t port) {
    sockaddr_in6 any6{};
    any6.sin6_family = AF_INET6;
    any6.sin6_port = htons(port);
    sockaddr_in any4{};
    any4.sin_family = AF_INET;
    any4.sin_port = htons(port);
    const int type = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
    const auto serve = [](const Descriptor& socket, const void* address, socklen_t bytes) {
        // Connections of a previous job may still linger on this port.
        const int one = 1;
        ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        return ::bind(socket.get(), static_cast<const sockaddr*>(address), bytes) == 0 &&
               ::listen(socket.get(), SOMAXCONN) == 0;
    };
    Descriptor socket(::socket(AF_INET6, type, 0));
    if (socket.is_open()) {
        const int both = 0;
        ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &both, sizeof both);
        if (serve(socket, &any6, sizeof any6)) {
            return socket;
        }
    }
    if (!socket.is_open() || errno == EADDRNOTAVAIL || errno == EAFNOSUPPORT) {
        socket = Descriptor(::socket(AF_INET, type, 0));
        if (socket.is_open() && serve(socket, &any4, sizeof any4)) {
            return socket;
        }
    }
    throw Error(Errc::system, system_failure("rank 0 cannot serve the store on port " +
                                                 std::to_string(port) + ", which MASTER_PORT names",
                                             errno)
                                  .detail);
}

std::uint16_t port_of(const Descriptor& socket) {
    const net::SocketAddress address = net::bound_address(socket);
    // Both families keep the port in the same place.
    return ntohs(reinterpret_cast<const sockaddr_in*>(address.get())->sin_port);
}

}  // namespace

StoreService::StoreService(std::uint16_t port) : read_buffer_(kReadBytes) {
    listener_.fd = listen_everywhere(port);
    port_ = port_of(listener_.fd);
    wakeup_.fd = Descriptor(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!wakeup_.fd.is_open()) {
        throw Error(Errc::system, system_failure("eventfd", errno).detail);
    }
    wakeup_.readable = false;
    thread_ = start_helper_thread("regroup-store", [this] { run(); });
}

StoreService::~StoreService() {
    stopping_ = true;
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wakeup_.fd.get(), &one, sizeof one);
    thread_.join();
}

void StoreService::run() {
    net::PollSet poll;
    while (!stopping_) {
        Instant until = Instant::max();
        poll.want_read(wakeup_);
        if (SteadyClock().now() >= accept_again_at_) {
            poll.want_read(listener_);
        } else {
            until = accept_again_at_;
        }
        for (auto& [id, client] : clients_) {
            // No requests are read from a client that does not read its replies.
            if (client.outbox.empty()) {
                poll.want_read(client.stream);
            } else {
                poll.want_write(client.stream);
            }
        }
        poll.wait(until);
        accept_all(SteadyClock().now());
        for (auto& [id, client] : clients_) {
            serve(id, client);
        }
        std::erase_if(clients_, [this](const auto& entry) {
            const bool gone = entry.second.finished || entry.second.stream.ended();
            if (gone) {
                core_.cancel_wait(entry.first);
            }
            return gone;
        });
    }
}

void StoreService::accept_all(Instant now) {
    while (listener_.readable && now >= accept_again_at_) {
        Descriptor socket(
            ::accept4(listener_.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (socket.is_open()) {
            clients_.try_emplace(store::ClientId{next_client_++}, net::Stream(std::move(socket)));
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            listener_.readable = false;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            accept_again_at_ = after(now, kAcceptRest);
        }
    }
}

void StoreService::serve(store::ClientId id, Client& client) {
    flush(client);
    if (!client.outbox.empty()) {
        return;
    }
    const std::size_t count = client.stream.read_some(read_buffer_);
    handle(id, client, {reinterpret_cast<const char*>(read_buffer_.data()), count});
    flush(client);
}

void StoreService::handle(store::ClientId id, Client& client, std::string_view bytes) {
    while (!bytes.empty() && !client.finished) {
        auto request = client.parser.next(bytes);
        if (!request) {
            client.finished = true;
            return;
        }
        if (!*request) {
            return;
        }
        store::Released released;
        const Result<void> done = store::execute(core_, id, **request, client.outbox, released);
        client.finished = !done || client.outbox.size() > core_.limits().reply_bytes_max;
        for (const store::ClientId waiter : released) {
            const auto found = clients_.find(waiter);
            if (found != clients_.end()) {
                found->second.outbox.push_back(store::kStopWaiting);
                flush(found->second);
            }
        }
    }
}

void StoreService::flush(Client& client) {
    const std::size_t count = client.stream.write_some(std::as_bytes(std::span(client.outbox)));
    client.outbox.erase(0, count);
}

}  // namespace regroup
