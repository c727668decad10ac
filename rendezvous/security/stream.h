// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <poll.h>
#include <string>
#include <tuple>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "rendezvous/base/result.h"
#include "rendezvous/security/tls.h"

namespace regroup::security {

/// A TCP connection that may speak TLS from some point on. One read and one write may be in
/// progress at a time, both on the one thread of the socket's io_context; the Stream outlives them.
/// Memory of an idle TLS connection: about 13 KiB.
class Stream {
   public:
    using ErrorCode = boost::system::error_code;
    using Socket = boost::asio::ip::tcp::socket;

    explicit Stream(Socket socket) : socket_(std::move(socket)) {}

    [[nodiscard]] Socket& socket() noexcept { return socket_; }
    [[nodiscard]] const Socket& socket() const noexcept { return socket_; }
    [[nodiscard]] bool is_open() const { return socket_.is_open(); }
    [[nodiscard]] bool is_secured() const noexcept { return is_secured_; }
    [[nodiscard]] const Ssl& ssl() const noexcept { return ssl_; }
    /// Why TLS broke after the handshake, as the predicate of a sentence about the peer; empty if
    /// it did not. A server checks a client's certificate after the client's handshake is done, so
    /// its refusal comes with the first read.
    [[nodiscard]] const std::string& refusal() const noexcept { return refusal_; }
    /// OpenSSL's code of the error that broke TLS, in the handshake or later. 0: none did.
    [[nodiscard]] unsigned long tls_error() const noexcept { return tls_error_; }
    /// Cancels what is in progress.
    void close();

    /// The next byte, left in the socket, or -1 at the end of the connection.
    boost::asio::awaitable<int> peek();

    // These two do not wait.
    /// The peer has closed its side: no more comes than is here already.
    [[nodiscard]] bool has_hung_up() const { return polls(POLLRDHUP); }
    /// Bytes of the peer, or its end.
    [[nodiscard]] bool has_something_to_read() const { return polls(POLLIN); }

    /// Has no deadline: close the Stream to end it. Errors: disconnected, with the predicate of a
    /// sentence about the peer.
    boost::asio::awaitable<Result<void>> shake_hands(Ssl ssl);

    boost::asio::awaitable<std::tuple<ErrorCode, std::size_t>> read_some(
        boost::asio::mutable_buffer buffer);
    /// Writes all of `buffer`.
    boost::asio::awaitable<std::tuple<ErrorCode, std::size_t>> write(
        boost::asio::const_buffer buffer);

    /// The result of a read or a write that does not wait.
    struct Attempt {
        std::size_t count = 0;
        /// The readiness that the next one needs, as poll(2) names it: POLLIN or POLLOUT; 0: none.
        short wait_for = 0;
        ErrorCode error{};
    };
    /// For a thread of its own that waits by itself, after the handshake. The socket is
    /// non-blocking.
    Attempt try_read(boost::asio::mutable_buffer buffer);
    Attempt try_write(boost::asio::const_buffer buffer);

   private:
    [[nodiscard]] bool polls(short events) const;
    [[nodiscard]] Attempt tls_failure(int result);
    /// Waits until the socket is ready for what OpenSSL needs after it returned `result`, or
    /// returns the error.
    boost::asio::awaitable<ErrorCode> wait_for(int result);

    Socket socket_;
    Ssl ssl_;
    std::string refusal_;
    unsigned long tls_error_ = 0;
    bool is_secured_ = false;
};

}  // namespace regroup::security
