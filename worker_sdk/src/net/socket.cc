// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/net/socket.h"

#include <regroup/context.h>
#include <regroup/error.h>

#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "rendezvous/base/ensure.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/text.h"

namespace regroup::net {
namespace {

[[noreturn]] void throw_system(const std::string& what, int error_number) {
    throw Error(Errc::system, system_failure(what, error_number).detail);
}

bool would_block(int error_number) {
    return error_number == EAGAIN || error_number == EWOULDBLOCK;
}

void set_option(int fd, int level, int name, int value) {
    // Errors are harmless: these options only improve speed and the detection of silent deaths.
    static_cast<void>(::setsockopt(fd, level, name, &value, sizeof value));
}

std::uint16_t* port_field(sockaddr_storage& storage) {
    return storage.ss_family == AF_INET6 ? &reinterpret_cast<sockaddr_in6&>(storage).sin6_port
                                         : &reinterpret_cast<sockaddr_in&>(storage).sin_port;
}

}  // namespace

SocketAddress::SocketAddress(const sockaddr* address, socklen_t bytes) : bytes_(bytes) {
    ENSURE(bytes <= sizeof storage_);
    std::memcpy(&storage_, address, bytes);
}

SocketAddress SocketAddress::parse(std::string_view text) {
    const auto malformed = [&] {
        return Error(Errc::invalid_argument,
                     "\"" + std::string(text) + "\" is not an address and port");
    };
    const std::size_t colon = text.rfind(':');
    if (colon == std::string_view::npos) {
        throw malformed();
    }
    const auto port = parse_number<std::uint16_t>(text.substr(colon + 1));
    if (!port) {
        throw malformed();
    }
    std::string host(text.substr(0, colon));
    const bool is_v6 = host.size() > 2 && host.front() == '[' && host.back() == ']';
    addrinfo hints{};
    hints.ai_flags = AI_NUMERICHOST;
    hints.ai_family = is_v6 ? AF_INET6 : AF_INET;
    addrinfo* found = nullptr;
    if (::getaddrinfo((is_v6 ? host.substr(1, host.size() - 2) : host).c_str(), nullptr, &hints,
                      &found) != 0) {
        throw malformed();
    }
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> result(found, ::freeaddrinfo);
    return SocketAddress(result->ai_addr, result->ai_addrlen).with_port(*port);
}

std::string SocketAddress::text() const {
    char host[INET6_ADDRSTRLEN] = "?";
    if (storage_.ss_family == AF_INET6) {
        const auto& address = reinterpret_cast<const sockaddr_in6&>(storage_);
        ::inet_ntop(AF_INET6, &address.sin6_addr, host, sizeof host);
        const std::string scope =
            address.sin6_scope_id != 0 ? "%" + std::to_string(address.sin6_scope_id) : "";
        return "[" + std::string(host) + scope + "]:" + std::to_string(ntohs(address.sin6_port));
    }
    const auto& address = reinterpret_cast<const sockaddr_in&>(storage_);
    ::inet_ntop(AF_INET, &address.sin_addr, host, sizeof host);
    return std::string(host) + ":" + std::to_string(ntohs(address.sin_port));
}

SocketAddress SocketAddress::with_port(std::uint16_t port) const {
    SocketAddress result = *this;
    *port_field(result.storage_) = htons(port);
    return result;
}

SocketAddress local_address_towards(const std::string& host, std::uint16_t port) {
    if (host.empty()) {
        return SocketAddress::parse("127.0.0.1:0");
    }
    addrinfo hints{};
    hints.ai_socktype = SOCK_DGRAM;
    hints.ai_flags = AI_NUMERICSERV;
    addrinfo* found = nullptr;
    const int status = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
    if (status != 0) {
        throw Error(Errc::disconnected, "no address of the master \"" + host + "\" is known: " +
                                            ::gai_strerror(status) + "; check MASTER_ADDR");
    }
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> results(found, ::freeaddrinfo);
    int error_number = 0;
    for (const addrinfo* result = found; result != nullptr; result = result->ai_next) {
        // Connecting a datagram socket only looks the route up.
        const UniqueFd probe(::socket(result->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
        if (probe && ::connect(probe.get(), result->ai_addr, result->ai_addrlen) == 0) {
            return bound_address(probe).with_port(0);
        }
        error_number = errno;
    }
    throw Error(
        Errc::disconnected,
        system_failure("no route leads to the master \"" + host + "\"", error_number).detail);
}

SocketAddress own_address(const Context& context) {
    return local_address_towards(
        context.master_node_addr.empty() ? context.master_addr : context.master_node_addr,
        context.master_port);
}

UniqueFd listen_on(const SocketAddress& address) {
    UniqueFd socket(
        ::socket(address.get()->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket) {
        throw_system("socket for " + address.text(), errno);
    }
    if (::bind(socket.get(), address.get(), address.bytes()) != 0) {
        throw_system("bind " + address.text(), errno);
    }
    if (::listen(socket.get(), SOMAXCONN) != 0) {
        throw_system("listen on " + address.text(), errno);
    }
    return socket;
}

SocketAddress bound_address(const UniqueFd& socket) {
    sockaddr_storage storage{};
    socklen_t bytes = sizeof storage;
    if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&storage), &bytes) != 0) {
        throw_system("getsockname", errno);
    }
    return {reinterpret_cast<const sockaddr*>(&storage), bytes};
}

SocketAddress peer_address(const UniqueFd& socket) {
    sockaddr_storage storage{};
    socklen_t bytes = sizeof storage;
    if (::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&storage), &bytes) != 0) {
        return {};
    }
    return {reinterpret_cast<const sockaddr*>(&storage), bytes};
}

Stream::Stream(UniqueFd socket) : Pollable{.fd = std::move(socket)}, guard_(fd.get()) {
    const int fd_number = fd.get();
    set_option(fd_number, IPPROTO_TCP, TCP_NODELAY, 1);
    // The loss of a machine is detected after about 20 seconds, also on an idle connection.
    set_option(fd_number, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd_number, IPPROTO_TCP, TCP_KEEPIDLE, 5);
    set_option(fd_number, IPPROTO_TCP, TCP_KEEPINTVL, 5);
    set_option(fd_number, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

Stream& Stream::operator=(Stream&& other) noexcept {
    guard_ = std::move(other.guard_);  // First: the other one's guard closes nothing.
    std::swap(fd, other.fd);
    readable = other.readable;
    writable = other.writable;
    proof_ = other.proof_;
    proof_left_ = other.proof_left_;
    proof_wrong_ = other.proof_wrong_;
    records_ = std::move(other.records_);
    input_closed_ = other.input_closed_;
    input_ended_ = other.input_ended_;
    output_ended_ = other.output_ended_;
    return *this;
}

void Stream::expect(const security::Mac& proof) noexcept {
    proof_ = proof;
    proof_left_ = proof_.size();
}

/// True once the proof has arrived and is right.
bool Stream::read_proof() {
    security::Mac bytes{};
    while (proof_left_ > 0) {
        const std::size_t at = proof_.size() - proof_left_;
        const std::size_t count =
            raw_read(std::as_writable_bytes(std::span(bytes)).first(proof_left_));
        for (std::size_t i = 0; i < count; ++i) {
            const int differs = bytes[i] ^ proof_[at + i];
            proof_wrong_ = static_cast<std::uint8_t>(proof_wrong_ | differs);
        }
        proof_left_ -= count;
        if (count == 0) {
            break;
        }
    }
    input_ended_ = input_closed_ || (proof_left_ == 0 && proof_wrong_ != 0);
    return proof_left_ == 0 && !input_ended_;
}

void Stream::encrypt(const SessionKeys& keys) {
    records_ = std::make_unique<RecordChannel>(keys);
}

std::size_t Stream::read_some(std::span<std::byte> into) {
    if (!readable || input_ended_ || into.empty()) {
        return 0;
    }
    if (proof_left_ > 0 && !read_proof()) {
        return 0;
    }
    if (!records_) {
        const std::size_t count = raw_read(into);
        input_ended_ = input_closed_;
        return count;
    }
    const std::size_t count =
        records_->read(into, [this](std::span<std::byte> space) { return raw_read(space); });
    readable = readable || records_->holds_bytes();
    input_ended_ = records_->is_spoilt() || (input_closed_ && !records_->holds_bytes());
    return count;
}

std::size_t Stream::raw_read(std::span<std::byte> into) {
    if (!readable || input_closed_) {
        return 0;
    }
    ssize_t count = 0;
    do {
        count = ::recv(fd.get(), into.data(), into.size(), 0);
    } while (count < 0 && errno == EINTR);
    if (count > 0) {
        // A short read has emptied the socket; only poll can report more data.
        readable = static_cast<std::size_t>(count) == into.size();
        return static_cast<std::size_t>(count);
    }
    readable = false;
    if (count == 0 || !would_block(errno)) {
        input_closed_ = true;
    }
    return 0;
}

std::size_t Stream::write_some(std::span<const iovec> parts) {
    if (!writable || output_ended_ || parts.empty()) {
        return 0;
    }
    if (!records_) {
        return raw_write(parts);
    }
    return records_->write(parts, [this](std::span<std::byte> bytes) {
        const iovec part{bytes.data(), bytes.size()};
        return raw_write(std::span(&part, 1));
    });
}

std::size_t Stream::raw_write(std::span<const iovec> parts) {
    if (output_ended_) {
        return 0;
    }
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(parts.data());
    message.msg_iovlen = parts.size();
    ssize_t count = 0;
    do {
        count = ::sendmsg(fd.get(), &message, MSG_NOSIGNAL);
    } while (count < 0 && errno == EINTR);
    if (count >= 0) {
        return static_cast<std::size_t>(count);
    }
    writable = false;
    if (!would_block(errno)) {
        output_ended_ = true;
    }
    return 0;
}

std::size_t Stream::write_some(std::span<const std::byte> bytes) {
    if (bytes.empty()) {
        return 0;
    }
    const iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
    return write_some(std::span(&part, 1));
}

void Stream::limit_local_backlog(std::size_t bytes) {
    sockaddr_storage near{};
    sockaddr_storage far{};
    socklen_t near_bytes = sizeof near;
    socklen_t far_bytes = sizeof far;
    if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&near), &near_bytes) != 0 ||
        ::getpeername(fd.get(), reinterpret_cast<sockaddr*>(&far), &far_bytes) != 0) {
        return;  // The connection has ended.
    }
    *port_field(near) = 0;
    *port_field(far) = 0;
    if (near_bytes == far_bytes && std::memcmp(&near, &far, near_bytes) == 0) {
        // The kernel doubles the value, for its own use.
        set_option(fd.get(), SOL_SOCKET, SO_SNDBUF, static_cast<int>(bytes / 2));
    }
}

UniqueFd begin_connect(const SocketAddress& address) {
    UniqueFd socket(
        ::socket(address.get()->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket) {
        throw_system("socket for " + address.text(), errno);
    }
    // The first write reports an immediate refusal, like a later one.
    static_cast<void>(::connect(socket.get(), address.get(), address.bytes()));
    return socket;
}

int connect_error(const UniqueFd& socket) noexcept {
    int error_number = 0;
    socklen_t bytes = sizeof error_number;
    if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error_number, &bytes) != 0) {
        return errno;
    }
    return error_number;
}

}  // namespace regroup::net
