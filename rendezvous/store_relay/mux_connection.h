// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "rendezvous/security/stream.h"
#include "rendezvous/store_relay/mux_frame.h"

namespace regroup::store {

/// How a connection ended.
struct MuxEnd {
    bool in_order = false;  ///< The peer closed it.
    std::string why;        ///< The predicate of a sentence about the peer.
};

/// A TLS connection that carries channels. All that is sent in one turn of the event loop leaves
/// together. All calls from the one thread of the socket's io_context, which outlives it. Handlers
/// are not called after `close`.
class MuxConnection {
   public:
    struct Handlers {
        /// May close the connection.
        std::function<void(const MuxPiece& piece)> on_piece;
        /// There is room again.
        std::function<void()> on_room;
        std::function<void(const MuxEnd& end)> on_end;
    };

    /// `stream` has shaken hands.
    static std::shared_ptr<MuxConnection> make(std::unique_ptr<security::Stream> stream,
                                               Handlers handlers);
    /// Begins to read.
    void start();

    void send(Channel channel, MuxKind kind);
    /// Sends at most as many bytes as there is room for, and returns their count. After less than
    /// all, `on_room` is called once.
    std::size_t send_some(Channel channel, std::string_view bytes);
    /// The bytes that `send_some` would take. After 0, `on_room` is called once.
    [[nodiscard]] std::size_t room() noexcept;

    /// The peer has broken the protocol: ends the connection, with `on_end`.
    void fail(const std::string& why);
    void close();

   private:
    MuxConnection(std::unique_ptr<security::Stream> stream, Handlers handlers)
        : stream_(std::move(stream)), handlers_(std::move(handlers)) {}

    using Self = std::shared_ptr<MuxConnection>;
    static boost::asio::awaitable<void> read(Self self);
    static boost::asio::awaitable<void> write(Self self);
    void write_soon();
    void end(const MuxEnd& how);

    std::weak_ptr<MuxConnection> self_;
    std::unique_ptr<security::Stream> stream_;
    Handlers handlers_;
    std::string unsent_;   ///< Frames for the next turn.
    std::string sending_;  ///< Frames that the writer sends now.
    bool writes_ = false;
    bool was_full_ = false;
    bool ended_ = false;
};

}  // namespace regroup::store
