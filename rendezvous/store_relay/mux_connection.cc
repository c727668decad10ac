// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store_relay/mux_connection.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace regroup::store {
namespace {

namespace asio = boost::asio;

/// Of one TLS record.
constexpr std::size_t kRecordBytes = 16 * 1024;
/// Bytes read in a row, so that other work of the thread gets its turn.
constexpr std::size_t kReadsPerTurn = 64;
/// Unsent bytes from which on there is no room. More would only wait here instead of at its
/// sender.
constexpr std::size_t kUnsentMax = std::size_t{256} << 10U;
/// Beyond that, only the answers to opened channels can have come together.
constexpr std::size_t kUnsentLimit = 4 * kUnsentMax;

}  // namespace

std::shared_ptr<MuxConnection> MuxConnection::make(std::unique_ptr<security::Stream> stream,
                                                   Handlers handlers) {
    const Self made(new MuxConnection(std::move(stream), std::move(handlers)));
    made->self_ = made;
    return made;
}

void MuxConnection::start() {
    asio::co_spawn(stream_->socket().get_executor(), read(self_.lock()), asio::detached);
}

std::size_t MuxConnection::room() noexcept {
    const std::size_t waiting = unsent_.size() + sending_.size();
    was_full_ = was_full_ || waiting >= kUnsentMax;
    return ended_ || waiting >= kUnsentMax ? 0 : kUnsentMax - waiting;
}

void MuxConnection::send(Channel channel, MuxKind kind) {
    append_mux(unsent_, channel, kind);
    write_soon();
}

std::size_t MuxConnection::send_some(Channel channel, std::string_view bytes) {
    const std::size_t count = std::min(room(), bytes.size());
    was_full_ = was_full_ || count < bytes.size();
    append_mux_data(unsent_, channel, bytes.substr(0, count));
    write_soon();
    return count;
}

void MuxConnection::write_soon() {
    if (!writes_ && !ended_ && !unsent_.empty()) {
        writes_ = true;
        // In the next turn: else each frame would be sent alone.
        asio::post(stream_->socket().get_executor(), [self = self_.lock()] {
            asio::co_spawn(self->stream_->socket().get_executor(), write(self), asio::detached);
        });
    }
}

asio::awaitable<void> MuxConnection::write(Self self) {
    while (!self->unsent_.empty() && !self->ended_) {
        self->sending_.clear();
        self->sending_.swap(self->unsent_);
        const auto [error, count] = co_await self->stream_->write(asio::buffer(self->sending_));
        self->sending_.clear();
        if (error) {
            self->fail("broke the connection: " + error.message());
            co_return;
        }
        if (std::exchange(self->was_full_, false) && !self->ended_) {
            self->handlers_.on_room();
        }
    }
    self->writes_ = false;
}

asio::awaitable<void> MuxConnection::read(Self self) {
    MuxReader reader;
    std::array<char, kRecordBytes> buffer{};
    std::size_t reads = 0;
    while (!self->ended_) {
        const auto [error, count] = co_await self->stream_->read_some(asio::buffer(buffer));
        if (error) {
            const bool in_order = error == asio::error::eof;
            self->end({in_order, in_order ? "closed the connection"
                                          : "broke the connection: " + error.message()});
            co_return;
        }
        std::string_view bytes(buffer.data(), count);
        while (!bytes.empty() && !self->ended_) {
            const Result<std::optional<MuxPiece>> piece = reader.next(bytes);
            if (!piece) {
                self->fail(piece.error().detail);
                co_return;
            }
            if (*piece) {
                self->handlers_.on_piece(**piece);
            }
            if (self->unsent_.size() > kUnsentLimit) {
                self->fail("does not read what it is sent");
                co_return;
            }
        }
        // A read that finds bytes does not return to the event loop.
        if (++reads % kReadsPerTurn == 0) {
            co_await asio::post(asio::use_awaitable);
        }
    }
}

void MuxConnection::fail(const std::string& why) {
    end({false, why});
}

void MuxConnection::end(const MuxEnd& how) {
    if (!std::exchange(ended_, true)) {
        stream_->close();
        handlers_.on_end(how);
    }
}

void MuxConnection::close() {
    if (!std::exchange(ended_, true)) {
        stream_->close();
    }
}

}  // namespace regroup::store
