// SPDX-License-Identifier: Apache-2.0
//
// Connections are in daemon_connections.cc, the rest in daemon.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/http/door.h"
#include "rendezvous/security/peer_user.h"
#include "rendezvous/server/daemon.h"
#include "rendezvous/server/daemon_pages.h"
#include "rendezvous/server/job_table.h"
#include "rendezvous/server/launcher_store.h"
#include "rendezvous/server/log_limiter.h"
#include "rendezvous/server/session.h"
#include "rendezvous/view/daemon_counters.h"

namespace regroup::rendezvous {

namespace asio = boost::asio;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;

struct Daemon::Impl {
    Impl(asio::io_context& io_in, const Clock& clock_in, const DaemonLimits& limits_in, Log log_in)
        : io(io_in),
          clock(clock_in),
          limits(limits_in),
          log(std::move(log_in)),
          sweep_timer(io_in),
          flush_timer(io_in),
          refusals([this](const std::string& line) { log(line); }) {}

    static asio::awaitable<void> accept(std::shared_ptr<Impl> self);
    static asio::awaitable<void> serve(std::shared_ptr<Impl> self,
                                       std::shared_ptr<Session> session);

    void open(tcp::socket socket);
    /// Makes room for one more stranger.
    void evict_oldest_stranger();
    /// True if the session, whose next message this is, may go on as a connection of the daemon.
    bool promote(const std::shared_ptr<Session>& session, const FromAgent& message);
    Result<void> open_tls();
    /// Finds out who the peer is, by TLS or by its user. False: read nothing from the session.
    static asio::awaitable<bool> identify(std::shared_ptr<Impl> self,
                                          std::shared_ptr<Session> session);
    static asio::awaitable<bool> shake_hands(std::shared_ptr<Impl> self,
                                             std::shared_ptr<Session> session);
    void identify_plain(Session& session);
    /// Logs who asks for an action.
    void log_operator(const Session& session, const FromAgent& message) const;
    /// Why a peer that has proved nothing is refused.
    [[nodiscard]] std::string objection(const Session& session) const;
    /// Why a peer that speaks the store's protocol is refused; empty if it is served.
    [[nodiscard]] std::string objection_to_store(const Session& session);
    /// Why the peer may not send `message`; empty if it may. If the peer may see one job only, a
    /// request for any job becomes one for that.
    [[nodiscard]] static std::string objection(const Session& session, FromAgent& message);
    /// Handles a connection's first bytes. False: read no more from the session.
    bool begin(const std::shared_ptr<Session>& session, std::string_view bytes);
    /// The only way into the store: refuses peers that must not reach it.
    void hand_to_store(Session& session);
    void hand_to_http(Session& session);
    /// False: read no more from the session.
    bool consume(const std::shared_ptr<Session>& session, std::string_view bytes);
    void send(const std::shared_ptr<Session>& session, const FromDaemon& message);
    /// Sends the messages that `next` makes, each when the one before it is written.
    void send_parts(const std::shared_ptr<Session>& session,
                    std::function<std::optional<FromDaemon>()> next);
    /// Call after everything that makes the session hold more or less. Disconnects those that hold
    /// most if all together hold too much.
    void charge(Session& session);
    void refuse(const std::shared_ptr<Session>& session, Errc code, const std::string& reason);
    void end(const std::shared_ptr<Session>& session);
    void sweep();
    void expire(Session& session);
    [[nodiscard]] std::size_t members_count() const;
    [[nodiscard]] DaemonCounters counted() const;
    /// The node of the session, if it is one, has sent a message.
    void note_message(Session& session, Instant now);
    void count_refusal(const std::string& kind);
    /// `kind` is one of a few words.
    void log_refusal(const std::string& kind, const Session& session, const std::string& line);
    void check_flushed();
    void flush(Duration limit, std::function<void()> done);

    /// Handlers keep the Impl alive: they may run, cancelled, after the Daemon is gone.
    std::weak_ptr<Impl> self;
    asio::io_context& io;
    const Clock& clock;
    DaemonLimits limits;
    Log log;
    StoreHandler store_handler;
    std::vector<EventSink> event_sinks;
    store::Dialect older_dialect = store::Dialect::v1_13;
    bool serves_torchrun = false;
    std::unique_ptr<LauncherStore> store;  ///< With serves_torchrun; used without a store_handler.
    std::set<std::string> older_hosts;
    std::unique_ptr<tcp::acceptor> acceptor;
    asio::steady_timer sweep_timer;
    asio::steady_timer flush_timer;
    std::function<void()> on_flushed;
    std::unique_ptr<JobTable> jobs;      ///< Null once the Daemon is destroyed.
    std::unique_ptr<DaemonPages> pages;  ///< As long as `jobs`.
    std::set<std::string> http_hosts;
    std::unique_ptr<http::Door> door;
    std::set<std::shared_ptr<Session>> sessions;
    /// Those of `sessions` that are no members yet, the oldest first.
    std::map<std::uint64_t, std::shared_ptr<Session>> strangers;
    std::uint64_t last_stranger = 0;
    std::size_t held_bytes = 0;  ///< All that is charged to `sessions`.
    LogLimiter refusals;         ///< Lines that strangers cause as often as they like.
    security::PeerUsers peer_users;
    security::Credentials credentials;
    std::optional<security::Tls> tls;
    DaemonTraffic traffic;
    DaemonCounters counters;  ///< Without the counts that `counted` looks up.
    bool closed = false;
};

}  // namespace regroup::rendezvous
