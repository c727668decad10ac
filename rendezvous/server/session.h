// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "rendezvous/base/clock.h"
#include "rendezvous/core/messages.h"
#include "rendezvous/protocol/framing.h"
#include "rendezvous/security/credentials.h"
#include "rendezvous/security/stream.h"

namespace regroup::rendezvous {

/// One connection of the daemon, and the frames queued for its peer. Held by shared pointers, since
/// the reader, the writer and the job table release it in no fixed order.
struct Session {
    /// Called with the size of each frame sent, and with 0 when one begins and when none is left.
    using Written = std::function<void(Session& session, std::size_t bytes)>;

    /// Requires a connected socket; see `is_known`.
    Session(boost::asio::ip::tcp::socket socket_in, Written written_in);

    /// False if the peer disconnected before its address was read.
    [[nodiscard]] bool is_known() const { return !address.empty(); }
    void close();

    /// Queues `frame`; false if `frames_max` are waiting already. Does nothing once the connection
    /// is closed or is to close.
    static bool send(const std::shared_ptr<Session>& session, std::string frame,
                     std::size_t frames_max);
    /// Sends the frames that `next` makes, each when all before it are written; an empty one is
    /// their end. So a long answer takes the room of one frame. Goes on with `close_when_flushed`.
    static void send_parts(const std::shared_ptr<Session>& session,
                           std::function<std::string()> next);
    /// True if frames wait behind the one that is being written.
    [[nodiscard]] bool has_queue() const { return !outbox_.empty() || next_part_; }
    [[nodiscard]] bool is_flushed() const { return !writing_ || !stream.is_open(); }
    /// The memory of what is not read or not written in full. 0 once the connection is closed.
    [[nodiscard]] std::size_t held_bytes() const {
        return stream.is_open() ? reader.held_bytes() + unsent_bytes_ : 0;
    }

    security::Stream stream;
    /// The identity that the peer has proved; nothing before, and for a peer that could not.
    std::optional<security::Peer> proven;
    std::string peer;     ///< "10.0.0.4:41234", for the log.
    std::string address;  ///< "10.0.0.4".
    /// When the connection is closed. Every message of a joined node postpones it.
    Instant expires{};
    Duration silence_limit{};
    Duration heartbeat_timeout{};  ///< Of its job; zero until it has joined.
    Instant heard{};               ///< Its last message since then.
    protocol::FrameReader reader;
    std::string first_bytes;  ///< Kept until the protocol is known.
    bool protocol_told = false;
    bool time_told = false;      ///< The peer has the time of this host: see Assign.
    bool goes_to_store = false;  ///< A store connection that has not sent a byte yet.
    std::string job;             ///< Empty until it has joined.
    NodeId node;
    bool reads_logs = false;  ///< It answers ReadLog.
    bool close_when_flushed = false;
    Instant status_due{};           ///< An operator may ask again on this connection from then on.
    std::uint64_t stranger = 0;     ///< Its key among the daemon's strangers; 0: it is a member.
    std::size_t charged_bytes = 0;  ///< Of `held_bytes`, by the daemon.

   private:
    static void begin_to_write(const std::shared_ptr<Session>& session);
    static boost::asio::awaitable<void> write(std::shared_ptr<Session> session);
    /// The next frame to write; empty if there is none.
    std::string take_frame();
    void forget_unsent();

    std::deque<std::string> outbox_;          ///< Without the frame that is being written.
    std::function<std::string()> next_part_;  ///< May be empty.
    std::size_t unsent_bytes_ = 0;            ///< With the frame that is being written.
    bool writing_ = false;
    Written written_;
};

}  // namespace regroup::rendezvous
