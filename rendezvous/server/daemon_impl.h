// SPDX-License-Identifier: Apache-2.0
//
// Connections are in daemon_connections.cc, the rest in daemon.cc.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/http/door.h"
#include "rendezvous/server/connections.h"
#include "rendezvous/server/daemon.h"
#include "rendezvous/server/daemon_pages.h"
#include "rendezvous/server/job_table.h"
#include "rendezvous/server/launcher_store.h"
#include "rendezvous/server/peer_check.h"
#include "rendezvous/server/peer_log.h"
#include "rendezvous/view/daemon_counters.h"

namespace regroup::rendezvous {

struct Daemon::Impl {
    using Held = std::shared_ptr<Connection>;

    Impl(boost::asio::io_context& io_in, const Clock& clock_in, const DaemonSetup& setup);
    static void start(const std::shared_ptr<Impl>& self, boost::asio::ip::tcp::acceptor acceptor,
                      const DaemonSetup& setup);

    void open_store(const DaemonSetup& setup);
    static boost::asio::awaitable<void> accept(std::shared_ptr<Impl> self);
    static boost::asio::awaitable<void> serve(std::shared_ptr<Impl> self, Held connection);
    /// Handles a connection's first bytes. False: read no more from it.
    bool begin(Connection& connection, std::string_view bytes);
    /// The only way into the store: refuses peers that must not reach it.
    void hand_to_store(Connection& connection);
    void hand_to_http(Connection& connection);
    /// False: read no more from the connection.
    bool consume(Connection& connection, std::string_view bytes);
    /// False: read no more messages from the connection.
    bool take(Connection& connection, const std::string& payload);
    /// True if the connection, whose next message this is, may go on as one of the daemon.
    bool promote(Connection& connection, const FromAgent& message);
    /// Logs who asks for an action.
    void log_operator(const Session& session, const FromAgent& message) const;
    void end(const Held& connection);
    static void sweep(const std::shared_ptr<Impl>& self);
    void expire(Connection& connection);
    /// Calls `done` once all that waits has been handed to the kernel, or after `limit`.
    static void flush(const std::shared_ptr<Impl>& self, Duration limit,
                      std::function<void()> done);
    static void flush_door(const std::shared_ptr<Impl>& self, Instant until,
                           std::function<void()> done);
    void stop_accepting();
    [[nodiscard]] std::size_t members_count() const;
    [[nodiscard]] DaemonCounters counted() const;

    /// Handlers keep the Impl alive: they may run, cancelled, after the Daemon is gone.
    boost::asio::io_context& io;
    const Clock& clock;
    const DaemonLimits limits;
    Log log;
    DaemonCounters counters;  ///< Without the counts that `counted` looks up.
    PeerLog peers_log;
    PeerCheck peers;
    std::shared_ptr<Connections> connections;
    const std::set<std::string> http_hosts;
    std::unique_ptr<JobTable> jobs;      ///< Null once the Daemon is destroyed.
    std::unique_ptr<DaemonPages> pages;  ///< As long as `jobs`.
    std::unique_ptr<http::Door> door;    ///< The same.
    StoreHandler store_handler;
    std::unique_ptr<LauncherStore> store;  ///< With --serve-torchrun, without a store_handler.
    std::set<std::string> older_hosts;
    std::unique_ptr<boost::asio::ip::tcp::acceptor> acceptor;
    boost::asio::steady_timer sweep_timer;
    boost::asio::steady_timer flush_timer;
    bool closed = false;
};

}  // namespace regroup::rendezvous
