// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/uio.h>
#include <utility>

#include "rendezvous/files/unique_fd.h"
#include "worker_sdk/src/net/fork_guard.h"
#include "worker_sdk/src/net/record_cipher.h"

namespace regroup {
struct Context;
}

namespace regroup::net {

/// An IPv4 or IPv6 address with its port. A value.
class SocketAddress {
   public:
    SocketAddress() = default;
    SocketAddress(const sockaddr* address, socklen_t bytes);

    /// Parses the format of `text`. Throws Error `invalid_argument`.
    [[nodiscard]] static SocketAddress parse(std::string_view text);
    /// "10.0.0.4:4711", "[fe80::1]:4711".
    [[nodiscard]] std::string text() const;

    [[nodiscard]] const sockaddr* get() const noexcept {
        return reinterpret_cast<const sockaddr*>(&storage_);
    }
    [[nodiscard]] socklen_t bytes() const noexcept { return bytes_; }
    [[nodiscard]] SocketAddress with_port(std::uint16_t port) const;

   private:
    sockaddr_storage storage_{};
    socklen_t bytes_ = 0;
};

/// The address of this machine from which `host` is reached; the loopback address for an empty
/// `host`. Asks the routing table and sends no packets. Throws Error `disconnected` if `host` has
/// no address or no route leads there.
[[nodiscard]] SocketAddress local_address_towards(const std::string& host, std::uint16_t port);

/// The address, with port 0, on which this rank listens for the others: that from which it reaches
/// the master's node. Throws as local_address_towards.
[[nodiscard]] SocketAddress own_address(const Context& context);

/// A non-blocking listening socket on `address`. Throws Error `system`.
[[nodiscard]] UniqueFd listen_on(const SocketAddress& address);
/// The address to which a socket is bound.
[[nodiscard]] SocketAddress bound_address(const UniqueFd& socket);
/// The address of the far end; an empty one once the connection has broken.
[[nodiscard]] SocketAddress peer_address(const UniqueFd& socket);

/// A descriptor for poll(), with its known readiness: a side is "ready" until an attempt would have
/// blocked, and again when poll reports it. Both sides start as ready, so an attempt comes before
/// the first wait.
struct Pollable {
    UniqueFd fd;
    bool readable = true;
    bool writable = true;
};

/// A connected non-blocking TCP socket. Errors do not throw: if the far end is gone, `ended` is
/// set, and the owner decides what to do.
class Stream : public Pollable {
   public:
    /// Takes a socket that accept() or connect() yields; sets TCP_NODELAY and keepalive.
    explicit Stream(UniqueFd socket);
    Stream(Stream&&) noexcept = default;
    Stream& operator=(Stream&& other) noexcept;

    /// Reads what is there, at most `into`. 0: nothing now (then `readable` is false), or ended.
    std::size_t read_some(std::span<std::byte> into);
    /// Writes what fits. 0: no room now (then `writable` is false), or ended.
    std::size_t write_some(std::span<const iovec> parts);
    std::size_t write_some(std::span<const std::byte> bytes);

    /// The far end has to begin with these bytes, which `read_some` does not give; else the stream
    /// ends.
    void expect(const security::Mac& proof) noexcept;
    /// Encrypts all further bytes of both directions. A caller of `write_some` must then come back
    /// with the bytes that did not fit, unchanged.
    void encrypt(const SessionKeys& keys);

    /// If both ends are on this machine, lets at most about `bytes` wait in the kernel. Within one
    /// machine the network holds nothing, so that more only leaves the processor's cache.
    void limit_local_backlog(std::size_t bytes);

    /// The far end closed or broke the connection.
    [[nodiscard]] bool ended() const noexcept { return input_ended_ || output_ended_; }
    /// Nothing more can be read. After a failed write, data that arrived before can still be read.
    [[nodiscard]] bool input_ended() const noexcept { return input_ended_; }

   private:
    [[nodiscard]] bool read_proof();
    std::size_t raw_read(std::span<std::byte> into);
    std::size_t raw_write(std::span<const iovec> parts);

    ForkGuard guard_;
    security::Mac proof_{};
    std::size_t proof_left_ = 0;  // Bytes of `proof_` that have not arrived.
    std::uint8_t proof_wrong_ = 0;
    std::unique_ptr<RecordChannel> records_;  // Null: not encrypted.
    bool input_closed_ = false;               // The connection gives nothing more.
    bool input_ended_ = false;
    bool output_ended_ = false;
};

/// Begins to connect; when the socket becomes writable, `connect_error` has the result.
[[nodiscard]] UniqueFd begin_connect(const SocketAddress& address);
/// errno of a connection attempt that has come to an end; 0 for success.
[[nodiscard]] int connect_error(const UniqueFd& socket) noexcept;

}  // namespace regroup::net
