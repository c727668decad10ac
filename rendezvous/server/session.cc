// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/session.h"

#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "rendezvous/base/text.h"
#include "rendezvous/base/wall_clock.h"
#include "rendezvous/net/address.h"
#include "rendezvous/net/descriptor.h"
#include "rendezvous/protocol/codec.h"
#include "rendezvous/protocol/framing.h"

namespace regroup::rendezvous {

namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;

/// Adds the time of this host if the message can have it.
FromDaemon with_time(FromDaemon message, bool& told) {
    if (auto* assign = std::get_if<Assign>(&message)) {
        assign->now_ms = wall_ms();
        told = true;
    } else if (auto* waiting = std::get_if<Waiting>(&message)) {
        waiting->now_ms = wall_ms();
        told = true;
    }
    return message;
}

}  // namespace

std::shared_ptr<Session> Session::create(tcp::socket socket, std::weak_ptr<SessionOwner> owner,
                                         std::size_t frames_max, Duration silence_limit) {
    std::shared_ptr<Session> session(
        new Session(std::move(socket), std::move(owner), frames_max, silence_limit));
    session->self_ = session;
    return session;
}

Session::Session(tcp::socket socket_in, std::weak_ptr<SessionOwner> owner, std::size_t frames_max,
                 Duration silence_limit)
    : stream(std::move(socket_in)),
      owner_(std::move(owner)),
      frames_max_(frames_max),
      silence_limit_(silence_limit) {
    tcp::socket& socket = stream.socket();
    net::set_close_on_exec(socket.native_handle());
    ErrorCode error;
    socket.set_option(tcp::no_delay(true), error);
    const tcp::endpoint endpoint = socket.remote_endpoint(error);
    if (!error) {
        peer.address = net::plain(endpoint.address()).to_string();
        peer.text = host_and_port(peer.address, endpoint.port());
    }
}

void Session::allow_silence(Duration limit, Instant now) {
    silence_limit_ = limit;
    hear(now);
}

void Session::send(const FromDaemon& message) {
    if (!is_open()) {
        return;
    }
    const auto owner = owner_.lock();
    if (outbox_.size() >= frames_max_) {
        close();
        if (owner) {
            owner->overflowed(*this);
        }
        return;
    }
    std::string frame = protocol::make_frame(
        time_told_ ? protocol::encode(message) : protocol::encode(with_time(message, time_told_)));
    if (!writing_) {
        // Mostly the kernel takes all of it at once. An error comes again when the rest is written.
        const std::size_t written = stream.try_write(asio::buffer(frame)).count;
        tell_written(written);
        frame.erase(0, written);
    }
    if (!frame.empty()) {
        unsent_bytes_ += frame.size();
        outbox_.push_back(std::move(frame));
        begin_to_write();
    }
    if (owner) {
        owner->queued(*this);
    }
}

void Session::finish() {
    finishing_ = true;
    if (!writing_) {
        shut_down();
    }
}

// Closes only the sending direction: the peer reads all, closes, and the reader ends the session.
void Session::shut_down() {
    if (stream.is_open()) {
        ErrorCode ignored;
        stream.socket().shutdown(tcp::socket::shutdown_send, ignored);
    }
}

void Session::begin_to_write() {
    if (!writing_) {
        writing_ = true;
        asio::co_spawn(stream.socket().get_executor(), write(self_.lock()), asio::detached);
    }
}

asio::awaitable<void> Session::write(std::shared_ptr<Session> session) {
    while (session->stream.is_open() && !session->outbox_.empty()) {
        const std::string frame = std::move(session->outbox_.front());
        session->outbox_.pop_front();
        session->tell_written(0);
        const auto [error, count] = co_await session->stream.write(asio::buffer(frame));
        session->unsent_bytes_ -= frame.size();
        if (error) {
            // The peer reads no more. Its last messages may still be unread; the reader closes the
            // connection after them.
            session->forget_unsent();
        }
        session->tell_written(count);
    }
    session->forget_unsent();
    session->writing_ = false;
    if (session->finishing_) {
        session->shut_down();
    }
    session->tell_written(0);
}

void Session::forget_unsent() {
    outbox_.clear();
    unsent_bytes_ = 0;
}

void Session::tell_written(std::size_t bytes) {
    if (const auto owner = owner_.lock()) {
        owner->written(*this, bytes);
    }
}

}  // namespace regroup::rendezvous
