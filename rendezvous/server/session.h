// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "rendezvous/base/clock.h"
#include "rendezvous/core/messages.h"
#include "rendezvous/protocol/framing.h"

namespace regroup::rendezvous {

/// One connection of the daemon, and the frames on their way to its peer. Held by shared pointers:
/// the one who reads, the one who writes and the job's table let go of it in no fixed order.
struct Session {
    /// `written` is told the bytes of each frame that went out, and at last 0 when none is left.
    /// Requires a connected socket; see `is_known`.
    Session(boost::asio::ip::tcp::socket socket_in,
            std::function<void(std::size_t bytes)> written_in);

    /// False if the peer was gone before it could be named.
    [[nodiscard]] bool is_known() const { return !address.empty(); }
    void close();

    /// Queues `frame`; false if `frames_max` are waiting already. Does nothing once the connection
    /// is closed or is to close.
    static bool send(const std::shared_ptr<Session>& session, std::string frame,
                     std::size_t frames_max);
    [[nodiscard]] bool is_flushed() const { return !writing_ || !socket.is_open(); }

    boost::asio::ip::tcp::socket socket;
    std::string peer;     ///< "10.0.0.4:41234", for the log.
    std::string address;  ///< "10.0.0.4".
    /// Closed by then: whoever has joined puts it off with every message.
    Instant expires{};
    Duration silence_limit{};
    protocol::FrameReader reader;
    std::string first_bytes;  ///< Until they tell the protocol.
    bool protocol_told = false;
    bool goes_to_store = false;  ///< It is the store's, though it has not said a byte.
    std::string job;             ///< Empty until it has joined.
    NodeId node;
    bool close_when_flushed = false;

   private:
    static boost::asio::awaitable<void> write(std::shared_ptr<Session> session);

    std::deque<std::string> outbox_;  ///< Without the frame that is being written.
    bool writing_ = false;
    std::function<void(std::size_t bytes)> written_;
};

}  // namespace regroup::rendezvous
