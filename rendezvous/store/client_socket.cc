// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store/client_socket.h"

#include <cerrno>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <utility>

#include "rendezvous/base/text.h"
#include "rendezvous/store/await_descriptor.h"

namespace regroup::store {
namespace {

/// While no process listens on a port of the ephemeral range, a local connection to it can get the
/// same port for its own end and then connects to itself.
bool is_connected_to_itself(int fd) {
    SocketAddress local;
    SocketAddress remote;
    local.bytes = remote.bytes = sizeof local.storage;
    return ::getsockname(fd, reinterpret_cast<sockaddr*>(&local.storage), &local.bytes) == 0 &&
           ::getpeername(fd, reinterpret_cast<sockaddr*>(&remote.storage), &remote.bytes) == 0 &&
           local.bytes == remote.bytes &&
           std::memcmp(&local.storage, &remote.storage, local.bytes) == 0;
}

bool is_retryable(int error_number) {
    return error_number == EAGAIN || error_number == EWOULDBLOCK || error_number == EINTR;
}

}  // namespace

ClientSocket::ClientSocket() : interrupt_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Result<void> ClientSocket::connect(const std::string& host, std::uint16_t port, Instant deadline) {
    close();
    peer_ = host_and_port(host, port);
    if (!interrupt_) {
        return Failure(Errc::system, "cannot connect to the store at " + peer_ +
                                         ": no descriptor was left for an eventfd");
    }
    const auto addresses = resolve(host, port, deadline, interrupt_.get());
    if (!addresses) {
        return addresses.error();
    }
    Result<void> connected = Failure(Errc::disconnected, "host '" + host + "' has no address");
    for (const SocketAddress& address : *addresses) {
        connected = connect_to(address, deadline);
        if (connected || connected.error().code == Errc::fenced) {
            break;
        }
    }
    return connected;
}

Result<void> ClientSocket::connect_to(const SocketAddress& address, Instant deadline) {
    const std::string what = "cannot connect to the store at " + peer_;
    UniqueFd socket(
        ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket) {
        return system_failure(what + ": socket", errno);
    }
    const int on = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    int error_number = 0;
    if (::connect(socket.get(), address.get(), address.bytes) != 0) {
        error_number = errno;
    }
    if (error_number == EINPROGRESS || error_number == EINTR) {
        switch (await_descriptor(socket.get(), POLLOUT, interrupt_.get(), deadline)) {
            case Readiness::interrupted:
                return Failure(Errc::fenced, what + ": interrupted");
            case Readiness::timed_out:
                return Failure(Errc::deadline_exceeded, what + ": no answer in time");
            case Readiness::ready:
                break;
        }
        socklen_t bytes = sizeof error_number;
        ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error_number, &bytes);
    }
    if (error_number == 0 && is_connected_to_itself(socket.get())) {
        error_number = ECONNREFUSED;
    }
    if (error_number != 0) {
        return Failure(Errc::disconnected, system_failure(what, error_number).detail);
    }
    socket_ = std::move(socket);
    return {};
}

Result<void> ClientSocket::send(std::string_view bytes, Instant deadline) {
    if (interrupted_.load()) {
        return Failure(Errc::fenced, "talking to the store at " + peer_ + " was interrupted");
    }
    if (!socket_) {
        return Failure(Errc::disconnected, "not connected to the store at " + peer_);
    }
    while (!bytes.empty()) {
        const ssize_t count = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (count >= 0) {
            bytes.remove_prefix(static_cast<std::size_t>(count));
        } else if (!is_retryable(errno)) {
            return Failure(Errc::disconnected,
                           system_failure("lost the store at " + peer_, errno).detail);
        } else if (auto ready = await(POLLOUT, deadline, "take a request"); !ready) {
            return ready;
        }
    }
    return {};
}

Result<void> ClientSocket::receive(char* bytes, std::size_t count, Instant deadline) {
    ENSURE(socket_);
    while (count > 0) {
        const ssize_t received = ::recv(socket_.get(), bytes, count, 0);
        if (received > 0) {
            bytes += received;
            count -= static_cast<std::size_t>(received);
        } else if (received == 0) {
            return Failure(Errc::disconnected,
                           "lost the store at " + peer_ + ": it closed the connection");
        } else if (!is_retryable(errno)) {
            return Failure(Errc::disconnected,
                           system_failure("lost the store at " + peer_, errno).detail);
        } else if (auto ready = await(POLLIN, deadline, "answer"); !ready) {
            return ready;
        }
    }
    return {};
}

Result<void> ClientSocket::pause_until(Instant instant) {
    if (await_descriptor(-1, 0, interrupt_.get(), instant) == Readiness::interrupted) {
        return Failure(Errc::fenced, "connecting to the store at " + peer_ + " was interrupted");
    }
    return {};
}

Result<void> ClientSocket::await(short events, Instant deadline, const char* what) {
    switch (await_descriptor(socket_.get(), events, interrupt_.get(), deadline)) {
        case Readiness::interrupted:
            return Failure(Errc::fenced, "waiting for the store at " + peer_ + " was interrupted");
        case Readiness::timed_out:
            return Failure(Errc::deadline_exceeded,
                           "the store at " + peer_ + " did not " + what + " in time");
        case Readiness::ready:
            break;
    }
    return {};
}

void ClientSocket::interrupt() noexcept {
    interrupted_.store(true);
    ::eventfd_write(interrupt_.get(), 1);
}

}  // namespace regroup::store
