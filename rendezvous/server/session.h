// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "rendezvous/base/clock.h"
#include "rendezvous/core/messages.h"
#include "rendezvous/security/credentials.h"
#include "rendezvous/security/stream.h"

namespace regroup::rendezvous {

class Session;

/// Hears what happens in the outboxes of its sessions.
class SessionOwner {
   public:
    SessionOwner() = default;
    virtual ~SessionOwner() = default;
    SessionOwner(const SessionOwner&) = delete;
    SessionOwner& operator=(const SessionOwner&) = delete;

    /// One more message waits to be sent.
    virtual void queued(Session& session) = 0;
    /// `bytes` are sent; 0 when a message begins, and when none is left.
    virtual void written(Session& session, std::size_t bytes) = 0;
    /// The peer does not read, and the session has closed itself.
    virtual void overflowed(Session& session) = 0;
};

/// The peer of a connection.
struct SessionPeer {
    std::string text;     ///< "10.0.0.4:41234", for the log.
    std::string address;  ///< "10.0.0.4".
    /// The identity that it has proved; nothing before, and for a peer that could not.
    std::optional<security::Peer> proven{};

    [[nodiscard]] std::string name() const { return proven ? proven->name : ""; }
    /// It may know the names of all jobs.
    [[nodiscard]] bool sees_all_jobs() const { return proven && proven->scope.job.empty(); }
};

/// The membership of a node in a job.
struct Membership {
    std::string job;
    NodeId node;
    Duration heartbeat_timeout{};
    bool reads_logs = false;  ///< It answers ReadLog.
};

/// One connection of the daemon, and the messages queued for its peer. Held by shared pointers,
/// since the reader, the writer and the job table release it in no fixed order.
class Session {
   public:
    /// `frames_max` frames wait for a slow peer. The peer may be silent for `silence_limit`. The
    /// address of the peer is empty if it has disconnected already.
    static std::shared_ptr<Session> create(boost::asio::ip::tcp::socket socket,
                                           std::weak_ptr<SessionOwner> owner,
                                           std::size_t frames_max, Duration silence_limit);
    virtual ~Session() = default;
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    security::Stream stream;
    SessionPeer peer;
    std::optional<Membership> membership;  ///< Once it has joined.
    Instant next_request{};  ///< An operator may ask again on this connection from then on.

    void close() { stream.close(); }
    /// Queues `message`. Does nothing once the connection is closed or is to close.
    virtual void send(const FromDaemon& message);
    /// Closes the connection once all messages are sent.
    void finish();
    void send_last(const FromDaemon& message) {
        send(message);
        finish();
    }

    [[nodiscard]] bool is_finishing() const noexcept { return finishing_; }
    /// True if the peer can be sent something.
    [[nodiscard]] bool is_open() const { return stream.is_open() && !finishing_; }
    /// True if frames wait behind the one that is being written.
    [[nodiscard]] bool has_queue() const { return !outbox_.empty(); }
    [[nodiscard]] bool is_flushed() const { return !writing_ || !stream.is_open(); }
    [[nodiscard]] std::size_t unsent_bytes() const noexcept { return unsent_bytes_; }

    /// From now on the peer may be silent for `limit`.
    void allow_silence(Duration limit, Instant now);
    /// The peer has sent a message.
    void hear(Instant now) { expires_ = after(now, silence_limit_); }
    [[nodiscard]] Duration silence_limit() const noexcept { return silence_limit_; }
    [[nodiscard]] bool is_overdue(Instant now) const noexcept { return now >= expires_; }

   protected:
    Session(boost::asio::ip::tcp::socket socket, std::weak_ptr<SessionOwner> owner,
            std::size_t frames_max, Duration silence_limit);

   private:
    void shut_down();
    void begin_to_write();
    static boost::asio::awaitable<void> write(std::shared_ptr<Session> session);
    void forget_unsent();
    void tell_written(std::size_t bytes);

    std::weak_ptr<Session> self_;  // Of create().
    const std::weak_ptr<SessionOwner> owner_;
    const std::size_t frames_max_;
    std::deque<std::string> outbox_;  // Without the frame that is being written.
    std::size_t unsent_bytes_ = 0;    // With the frame that is being written.
    bool writing_ = false;
    bool finishing_ = false;
    bool time_told_ = false;  // The peer has the time of this host: see Assign.
    Duration silence_limit_;
    Instant expires_ = Instant::max();
};

}  // namespace regroup::rendezvous
