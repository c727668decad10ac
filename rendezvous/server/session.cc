// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/session.h"

#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "rendezvous/base/text.h"
#include "rendezvous/net/address.h"
#include "rendezvous/net/descriptor.h"

namespace regroup::rendezvous {

namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;

}  // namespace

Session::Session(tcp::socket socket_in, Written written_in)
    : stream(std::move(socket_in)), written_(std::move(written_in)) {
    tcp::socket& socket = stream.socket();
    net::set_close_on_exec(socket.native_handle());
    ErrorCode error;
    socket.set_option(tcp::no_delay(true), error);
    const tcp::endpoint endpoint = socket.remote_endpoint(error);
    if (!error) {
        address = net::plain(endpoint.address()).to_string();
        peer = host_and_port(address, endpoint.port());
    }
}

void Session::close() {
    stream.close();
}

bool Session::send(const std::shared_ptr<Session>& session, std::string frame,
                   std::size_t frames_max) {
    if (!session->stream.is_open() || session->close_when_flushed) {
        return true;
    }
    if (session->outbox_.size() >= frames_max) {
        return false;
    }
    session->unsent_bytes_ += frame.size();
    session->outbox_.push_back(std::move(frame));
    begin_to_write(session);
    return true;
}

void Session::send_parts(const std::shared_ptr<Session>& session,
                         std::function<std::string()> next) {
    if (session->stream.is_open()) {
        session->next_part_ = std::move(next);
        begin_to_write(session);
    }
}

void Session::begin_to_write(const std::shared_ptr<Session>& session) {
    if (!session->writing_) {
        session->writing_ = true;
        asio::co_spawn(session->stream.socket().get_executor(), write(session), asio::detached);
    }
}

std::string Session::take_frame() {
    std::string frame;
    if (!outbox_.empty()) {
        frame = std::move(outbox_.front());
        outbox_.pop_front();
    } else if (next_part_) {
        frame = next_part_();
        unsent_bytes_ += frame.size();
        if (frame.empty()) {
            next_part_ = nullptr;
        }
    }
    return frame;
}

asio::awaitable<void> Session::write(std::shared_ptr<Session> session) {
    while (session->stream.is_open()) {
        const std::string frame = session->take_frame();
        if (frame.empty()) {
            break;
        }
        session->written_(*session, 0);
        const auto [error, count] = co_await session->stream.write(asio::buffer(frame));
        session->unsent_bytes_ -= frame.size();
        if (error) {
            // The peer reads no more. Its last messages may still be unread; the reader closes the
            // connection after them.
            session->forget_unsent();
        }
        session->written_(*session, count);
    }
    session->forget_unsent();
    session->writing_ = false;
    if (session->close_when_flushed && session->stream.is_open()) {
        // Closes only the sending direction: the peer reads all, closes, and the reader ends the
        // session.
        ErrorCode ignored;
        session->stream.socket().shutdown(tcp::socket::shutdown_send, ignored);
    }
    session->written_(*session, 0);
}

void Session::forget_unsent() {
    outbox_.clear();
    next_part_ = nullptr;
    unsent_bytes_ = 0;
}

}  // namespace regroup::rendezvous
