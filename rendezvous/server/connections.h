// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/base/clock.h"
#include "rendezvous/protocol/framing.h"
#include "rendezvous/server/daemon.h"
#include "rendezvous/server/peer_log.h"
#include "rendezvous/server/session.h"
#include "rendezvous/view/daemon_counters.h"

namespace regroup::rendezvous {

/// A session, and what the daemon has read from it.
struct Connection {
    std::shared_ptr<Session> session;
    std::string first_bytes{};  ///< Kept until the protocol is known.
    bool protocol_told = false;
    bool goes_to_store = false;  ///< A store connection that has not sent a byte yet.
    protocol::FrameReader reader{};
    Instant heard{};             ///< Its last message since it has joined.
    std::uint64_t stranger = 0;  ///< Its number among the strangers; 0: it is none.
    Instant accepted{};
    std::size_t charged_bytes = 0;  ///< Of `held_bytes`, by Connections.

    /// The memory of what is not read or not written in full. 0 once the connection is closed.
    [[nodiscard]] std::size_t held_bytes() const {
        return session->stream.is_open() ? reader.held_bytes() + session->unsent_bytes() : 0;
    }
};

/// The connections of a daemon, and the bounds on their number and memory. A stranger is a
/// connection that has not yet sent a message.
class Connections final : public SessionOwner {
   public:
    /// All references outlive it.
    Connections(boost::asio::io_context& io, const Clock& clock, const DaemonLimits& limits,
                PeerLog& peers_log, DaemonCounters& counters, Daemon::Log log);

    /// A stranger. `self` holds this object. Null if it is gone already, or its host has too many.
    std::shared_ptr<Connection> open(const std::shared_ptr<Connections>& self,
                                     boost::asio::ip::tcp::socket socket);
    /// True if another stranger has room, if need be in place of one that has kept this daemon
    /// waiting for long.
    [[nodiscard]] bool make_room();
    /// The same at any rate, if there is a stranger.
    [[nodiscard]] bool make_room_at_once();
    /// The connection is no stranger any more.
    void promote(Connection& connection);
    void end(const std::shared_ptr<Connection>& connection);
    void close_all();

    /// Call after everything that makes the connection hold more or less. Disconnects those that
    /// hold most if all together hold too much.
    void charge(Connection& connection);
    /// The connection has sent a message.
    void hear(Connection& connection);
    [[nodiscard]] std::vector<std::shared_ptr<Connection>> overdue() const;

    [[nodiscard]] std::size_t count() const noexcept { return all_.size(); }
    [[nodiscard]] std::size_t strangers_count() const noexcept { return strangers_.size(); }
    [[nodiscard]] std::size_t nodes_count() const;

    /// Calls `done` once all queued messages have been handed to the kernel, or after `limit`.
    void flush(Duration limit, std::function<void()> done);
    /// Forgets that call.
    void cancel_flush();

    void queued(Session& session) override;
    void written(Session& session, std::size_t bytes) override;
    void overflowed(Session& session) override;

   private:
    using Strangers = std::map<std::uint64_t, std::shared_ptr<Connection>>;  // The oldest first.

    /// Closes the oldest that has said nothing within `limit`; false if there is none.
    bool close_idle(const Strangers& strangers, Duration limit);
    void charge(Session& session);
    void check_flushed();

    boost::asio::io_context& io_;
    const Clock& clock_;
    const DaemonLimits& limits_;
    PeerLog& peers_log_;
    DaemonCounters& counters_;
    const Daemon::Log log_;
    std::map<const Session*, std::shared_ptr<Connection>> all_;
    Strangers strangers_;
    std::map<std::string, Strangers> strangers_of_;  // By address.
    std::uint64_t last_stranger_ = 0;
    std::size_t held_bytes_ = 0;  // All that is charged.
    boost::asio::steady_timer flush_timer_;
    std::function<void()> on_flushed_;
    std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
};

}  // namespace regroup::rendezvous
