// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/security/stream.h"

#include <cerrno>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include "rendezvous/base/ensure.h"
#include "rendezvous/net/await.h"

namespace regroup::security {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

using net::kAwait;

// OpenSSL's own socket BIO would end the process with SIGPIPE.

int descriptor_of(BIO* bio) {
    return static_cast<int>(reinterpret_cast<std::intptr_t>(BIO_get_data(bio)));
}

int finish(BIO* bio, ssize_t bytes, int retry_flag) {
    BIO_clear_retry_flags(bio);
    if (bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
        BIO_set_flags(bio, retry_flag | BIO_FLAGS_SHOULD_RETRY);
    }
    return static_cast<int>(bytes);
}

int send_bytes(BIO* bio, const char* bytes, int count) {
    const ssize_t sent =
        ::send(descriptor_of(bio), bytes, static_cast<std::size_t>(count), MSG_NOSIGNAL);
    return finish(bio, sent, BIO_FLAGS_WRITE);
}

int receive_bytes(BIO* bio, char* bytes, int count) {
    const ssize_t received = ::recv(descriptor_of(bio), bytes, static_cast<std::size_t>(count), 0);
    return finish(bio, received, BIO_FLAGS_READ);
}

long control(BIO* /*bio*/, int command, long /*number*/, void* /*pointer*/) {
    return command == BIO_CTRL_FLUSH ? 1 : 0;
}

BIO* bio_on(int fd) {
    static BIO_METHOD* const method = [] {
        BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket");
        ENSURE(made != nullptr && BIO_meth_set_write(made, send_bytes) == 1 &&
               BIO_meth_set_read(made, receive_bytes) == 1 &&
               BIO_meth_set_ctrl(made, control) == 1);
        return made;
    }();
    BIO* bio = BIO_new(method);
    ENSURE(bio != nullptr);
    BIO_set_data(bio, reinterpret_cast<void*>(static_cast<std::intptr_t>(fd)));
    BIO_set_init(bio, 1);
    return bio;
}

}  // namespace

void Stream::close() {
    error_code ignored;
    socket_.close(ignored);
}

asio::awaitable<int> Stream::peek() {
    for (;;) {
        const auto [error] = co_await socket_.async_wait(Socket::wait_read, kAwait);
        if (error || !socket_.is_open()) {
            co_return -1;
        }
        unsigned char byte = 0;
        const ssize_t count = ::recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        if (count == 1) {
            co_return byte;
        }
        if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
            co_return -1;
        }
    }
}

bool Stream::polls(short events) const {
    // Asio has no constant way to the descriptor.
    pollfd polled{const_cast<Socket&>(socket_).native_handle(), events, 0};
    return ::poll(&polled, 1, 0) > 0;
}

asio::awaitable<Result<void>> Stream::shake_hands(Ssl ssl) {
    error_code error;
    socket_.non_blocking(true, error);
    ssl_ = std::move(ssl);
    BIO* bio = bio_on(socket_.native_handle());
    SSL_set_bio(ssl_.get(), bio, bio);
    for (;;) {
        ERR_clear_error();
        const int result = SSL_do_handshake(ssl_.get());
        if (result == 1) {
            is_secured_ = true;
            co_return Result<void>();
        }
        const int why = SSL_get_error(ssl_.get(), result);
        if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE) {
            tls_error_ = ERR_peek_error();
            co_return Failure(Errc::disconnected, take_handshake_error(ssl_));
        }
        const auto [wait_error] = co_await socket_.async_wait(
            why == SSL_ERROR_WANT_READ ? Socket::wait_read : Socket::wait_write, kAwait);
        if (wait_error || !socket_.is_open()) {
            co_return Failure(Errc::disconnected, "did not complete the TLS handshake in time");
        }
    }
}

asio::awaitable<Stream::ErrorCode> Stream::wait_for(int result) {
    const int why = SSL_get_error(ssl_.get(), result);
    if (why == SSL_ERROR_ZERO_RETURN) {
        co_return asio::error::eof;
    }
    if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE) {
        const bool is_broken = why == SSL_ERROR_SSL;
        if (is_broken && refusal_.empty()) {
            tls_error_ = ERR_peek_error();
            refusal_ = take_handshake_error(ssl_);
        }
        ERR_clear_error();
        co_return is_broken ? ErrorCode(asio::error::connection_aborted)
                            : ErrorCode(asio::error::eof);
    }
    const auto [error] = co_await socket_.async_wait(
        why == SSL_ERROR_WANT_READ ? Socket::wait_read : Socket::wait_write, kAwait);
    if (!error && !socket_.is_open()) {
        co_return asio::error::operation_aborted;
    }
    co_return error;
}

asio::awaitable<std::tuple<Stream::ErrorCode, std::size_t>> Stream::read_some(
    asio::mutable_buffer buffer) {
    if (!ssl_) {
        co_return co_await socket_.async_read_some(buffer, kAwait);
    }
    while (socket_.is_open()) {
        ERR_clear_error();
        std::size_t count = 0;
        const int result = SSL_read_ex(ssl_.get(), buffer.data(), buffer.size(), &count);
        if (result == 1) {
            // As after a read without TLS, others have their turn: a peer can send faster than its
            // bytes are handled.
            co_await asio::post(socket_.get_executor(), asio::use_awaitable);
            co_return std::tuple(ErrorCode(), count);
        }
        if (const ErrorCode error = co_await wait_for(result)) {
            co_return std::tuple(error, std::size_t{0});
        }
    }
    co_return std::tuple(ErrorCode(asio::error::operation_aborted), std::size_t{0});
}

asio::awaitable<std::tuple<Stream::ErrorCode, std::size_t>> Stream::write(
    asio::const_buffer buffer) {
    if (!ssl_) {
        co_return co_await asio::async_write(socket_, buffer, kAwait);
    }
    std::size_t written = 0;
    while (socket_.is_open() && buffer.size() > 0) {
        ERR_clear_error();
        std::size_t count = 0;
        const int result = SSL_write_ex(ssl_.get(), buffer.data(), buffer.size(), &count);
        if (result == 1) {
            buffer += count;
            written += count;
            continue;
        }
        if (const ErrorCode error = co_await wait_for(result)) {
            co_return std::tuple(error, written);
        }
    }
    co_return std::tuple(
        buffer.size() == 0 ? ErrorCode() : ErrorCode(asio::error::operation_aborted), written);
}

namespace {

Stream::Attempt attempt_of(ssize_t count, short wait_for) {
    if (count >= 0) {
        return {.count = static_cast<std::size_t>(count)};
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) {
        return {.wait_for = wait_for};
    }
    return {.error = error_code(errno, boost::system::system_category())};
}

}  // namespace

Stream::Attempt Stream::tls_failure(int result) {
    switch (SSL_get_error(ssl_.get(), result)) {
        case SSL_ERROR_WANT_READ:
            return {.wait_for = POLLIN};
        case SSL_ERROR_WANT_WRITE:
            return {.wait_for = POLLOUT};
        case SSL_ERROR_SSL:
            refusal_ = take_handshake_error(ssl_);
            return {.error = asio::error::connection_aborted};
        default:
            ERR_clear_error();
            return {.error = asio::error::eof};
    }
}

Stream::Attempt Stream::try_read(asio::mutable_buffer buffer) {
    if (!ssl_) {
        Attempt attempt =
            attempt_of(::recv(socket_.native_handle(), buffer.data(), buffer.size(), 0), POLLIN);
        if (attempt.count == 0 && attempt.wait_for == 0 && !attempt.error) {
            attempt.error = asio::error::eof;
        }
        return attempt;
    }
    ERR_clear_error();
    std::size_t count = 0;
    const int result = SSL_read_ex(ssl_.get(), buffer.data(), buffer.size(), &count);
    return result == 1 ? Attempt{.count = count} : tls_failure(result);
}

Stream::Attempt Stream::try_write(asio::const_buffer buffer) {
    if (!ssl_) {
        return attempt_of(::send(socket_.native_handle(), buffer.data(), buffer.size(),
                                 MSG_NOSIGNAL | MSG_DONTWAIT),
                          POLLOUT);
    }
    ERR_clear_error();
    std::size_t count = 0;
    const int result = SSL_write_ex(ssl_.get(), buffer.data(), buffer.size(), &count);
    return result == 1 ? Attempt{.count = count} : tls_failure(result);
}

}  // namespace regroup::security
