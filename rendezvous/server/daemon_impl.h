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
#include <utility>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/server/daemon.h"
#include "rendezvous/server/job_table.h"
#include "rendezvous/server/launcher_store.h"
#include "rendezvous/server/session.h"

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
          flush_timer(io_in) {}

    static asio::awaitable<void> accept(std::shared_ptr<Impl> self);
    static asio::awaitable<void> serve(std::shared_ptr<Impl> self,
                                       std::shared_ptr<Session> session);

    void open(tcp::socket socket);
    void turn_away(tcp::socket& socket, const std::string& peer);
    /// Handles a connection's first bytes. False: read no more from the session.
    bool begin(const std::shared_ptr<Session>& session, std::string_view bytes);
    void hand_to_store(Session& session);
    /// False: read no more from the session.
    bool consume(const std::shared_ptr<Session>& session, std::string_view bytes);
    void send(const std::shared_ptr<Session>& session, const FromDaemon& message);
    void refuse(const std::shared_ptr<Session>& session, Errc code, const std::string& reason);
    void end(const std::shared_ptr<Session>& session);
    void sweep();
    void expire(Session& session);
    [[nodiscard]] std::size_t connections_count() const;
    void check_flushed();
    void flush(Duration limit, std::function<void()> done);

    /// Handlers keep the Impl alive: they may run, cancelled, after the Daemon is gone.
    std::weak_ptr<Impl> self;
    asio::io_context& io;
    const Clock& clock;
    DaemonLimits limits;
    Log log;
    StoreHandler store_handler;
    store::Dialect older_dialect = store::Dialect::v1_13;
    std::unique_ptr<LauncherStore> store;  ///< Used when there is no store_handler.
    std::set<std::string> older_hosts;
    std::unique_ptr<tcp::acceptor> acceptor;
    asio::steady_timer sweep_timer;
    asio::steady_timer flush_timer;
    std::function<void()> on_flushed;
    std::unique_ptr<JobTable> jobs;  ///< Null once the Daemon is destroyed.
    std::set<std::shared_ptr<Session>> sessions;
    DaemonTraffic traffic;
    bool closed = false;
};

}  // namespace regroup::rendezvous
