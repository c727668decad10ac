// SPDX-License-Identifier: Apache-2.0
#include "agent/snapshot/peer_stream.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <exception>
#include <poll.h>
#include <sys/socket.h>
#include <tuple>
#include <utility>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "rendezvous/net/await.h"
#include "rendezvous/net/descriptor.h"
#include "rendezvous/security/peer_user.h"
#include "rendezvous/security/tls.h"

namespace regroup::agent {

namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr Duration kConnectLimit = std::chrono::seconds(5);
constexpr Duration kHandshakeLimit = std::chrono::seconds(10);
constexpr std::size_t kPieceBytes = std::size_t{4} << 20U;

Failure gone(std::string why) {
    return {Errc::disconnected, std::move(why)};
}

asio::awaitable<error_code> connect_to(tcp::socket& socket, tcp::endpoint place) {
    const auto [error] = co_await socket.async_connect(place, net::kAwait);
    co_return error;
}

/// The connection itself has no owner before the server accepts it.
std::optional<std::string> object_to_server(const tcp::endpoint& place) {
    const auto user = security::PeerUsers().user_who_listens(place);
    if (!user || !*user) {
        return "the kernel does not say which user listens there";
    }
    return security::is_trusted(**user)
               ? std::nullopt
               : std::optional("it belongs to " + security::user_text(**user));
}

}  // namespace

template <class T>
std::optional<T> PeerStream::wait(asio::awaitable<T> operation, Duration limit) {
    std::optional<T> result;
    io_.restart();
    asio::co_spawn(io_, std::move(operation), [&result](const std::exception_ptr&, T value) {
        result.emplace(std::move(value));
    });
    io_.run_for(limit);
    if (!result) {
        ::shutdown(stream_->socket().native_handle(), SHUT_RDWR);
        io_.run();  // Operations in progress end with an error.
        result.reset();
    }
    return result;
}

Result<std::unique_ptr<PeerStream>> PeerStream::connect(const rendezvous::Endpoint& endpoint,
                                                        const PeerTrust& trust,
                                                        OpenSockets& sockets) {
    error_code error;
    const auto address = asio::ip::make_address(endpoint.host, error);
    std::unique_ptr<PeerStream> made(new PeerStream());
    tcp::socket socket(made->io_);
    if (!error) {
        socket.open(address.is_v6() ? tcp::v6() : tcp::v4(), error);
    }
    if (error) {
        return gone("has no usable address: " + error.message());
    }
    net::set_close_on_exec(socket.native_handle());
    made->hold(std::move(socket), sockets);
    const auto connected = made->wait(
        connect_to(made->stream_->socket(), tcp::endpoint(address, endpoint.port)), kConnectLimit);
    if (!connected || *connected) {
        return gone("cannot be reached: " +
                    (connected ? connected->message() : std::string("no answer in time")));
    }
    if (Result<void> opened = made->open(trust, false); !opened) {
        return opened.error();
    }
    return made;
}

Result<std::unique_ptr<PeerStream>> PeerStream::accept(UniqueFd accepted, const PeerTrust& trust,
                                                       OpenSockets& sockets) {
    std::unique_ptr<PeerStream> made(new PeerStream());
    sockaddr_storage name{};
    socklen_t bytes = sizeof name;
    ::getsockname(accepted.get(), reinterpret_cast<sockaddr*>(&name), &bytes);
    tcp::socket socket(made->io_);
    error_code error;
    socket.assign(name.ss_family == AF_INET6 ? tcp::v6() : tcp::v4(), accepted.get(), error);
    if (error) {
        return gone("has gone");
    }
    static_cast<void>(accepted.release());
    made->hold(std::move(socket), sockets);
    if (Result<void> opened = made->open(trust, true); !opened) {
        return opened.error();
    }
    return made;
}

void PeerStream::hold(tcp::socket socket, OpenSockets& sockets) {
    stream_ = std::make_unique<security::Stream>(std::move(socket));
    entry_ = std::make_unique<OpenSockets::Entry>(sockets, stream_->socket().native_handle());
}

Result<void> PeerStream::open(const PeerTrust& trust, bool is_server) {
    tcp::socket& socket = stream_->socket();
    error_code error;
    socket.non_blocking(true, error);
    socket.set_option(tcp::no_delay(true), error);
    if (trust.same_user) {
        const tcp::endpoint ours = socket.local_endpoint(error);
        const tcp::endpoint theirs = error ? tcp::endpoint() : socket.remote_endpoint(error);
        if (error) {
            return gone("has gone");
        }
        const auto objection = is_server ? security::PeerUsers().object_to_stranger(ours, theirs)
                                         : object_to_server(theirs);
        return objection ? Result<void>(gone("is not trusted: " + *objection)) : Result<void>();
    }
    if (!trust.key) {
        return gone("cannot be trusted: this round has no key");
    }
    const security::Tls tls = is_server ? security::Tls::server(*trust.key, trust.purpose)
                                        : security::Tls::client(*trust.key, trust.purpose);
    const auto shaken = wait(stream_->shake_hands(tls.connection()), kHandshakeLimit);
    if (!shaken) {
        return gone("did not complete the TLS handshake in time");
    }
    return *shaken;
}

bool PeerStream::wait_for(short events, Instant last) const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(last - now()).count();
    pollfd socket{stream_->socket().native_handle(), events, 0};
    return left > 0 && (::poll(&socket, 1, static_cast<int>(left)) > 0 || errno == EINTR);
}

Result<void> PeerStream::send(std::span<const std::byte> bytes) {
    Instant last = after(now(), kPatience);
    while (!bytes.empty()) {
        const std::size_t most = std::min(kPieceBytes, bytes.size());
        const auto sent = stream_->try_write(asio::buffer(bytes.data(), most));
        if (sent.error) {
            return gone("closed the connection: " + sent.error.message());
        }
        if (sent.count > 0) {
            bytes = bytes.subspan(sent.count);
            last = after(now(), kPatience);
        } else if (!wait_for(sent.wait_for, last)) {
            return gone("took nothing for " + format_duration(kPatience));
        }
    }
    return {};
}

Result<void> PeerStream::receive(std::span<std::byte> bytes) {
    Instant last = after(now(), kPatience);
    while (!bytes.empty()) {
        const std::size_t most = std::min(kPieceBytes, bytes.size());
        const auto got = stream_->try_read(asio::buffer(bytes.data(), most));
        if (got.error) {
            return gone("closed the connection");
        }
        if (got.count > 0) {
            bytes = bytes.subspan(got.count);
            last = after(now(), kPatience);
        } else if (!wait_for(got.wait_for, last)) {
            return gone("sent nothing for " + format_duration(kPatience));
        }
    }
    return {};
}

// ---- Messages.

Result<void> PeerStream::send_text(const std::string& text) {
    std::string packet(sizeof(std::uint32_t), '\0');
    for (std::size_t i = 0; i < packet.size(); ++i) {
        packet[i] = static_cast<char>(text.size() >> (8 * i));
    }
    packet += text;
    return send(std::as_bytes(std::span(packet)));
}

Result<std::string> PeerStream::receive_text() {
    std::array<std::byte, sizeof(std::uint32_t)> length{};
    if (Result<void> received = receive(length); !received) {
        return received.error();
    }
    std::size_t count = 0;
    for (std::size_t i = 0; i < length.size(); ++i) {
        count |= std::to_integer<std::size_t>(length[i]) << (8 * i);
    }
    if (count > snapshot::kPacketBytesMax) {
        return gone("sent a message that is too long");
    }
    std::string text(count, '\0');
    if (Result<void> received = receive(std::as_writable_bytes(std::span(text))); !received) {
        return received.error();
    }
    return text;
}

Result<snapshot::Ask> PeerStream::receive_ask() {
    const Result<std::string> text = receive_text();
    return text ? snapshot::decode_ask(*text) : Result<snapshot::Ask>(text.error());
}

Result<snapshot::Answer> PeerStream::receive_answer() {
    const Result<std::string> text = receive_text();
    return text ? snapshot::decode_answer(*text) : Result<snapshot::Answer>(text.error());
}

}  // namespace regroup::agent
