// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/result.h"
#include "rendezvous/http/limits.h"
#include "rendezvous/journal/journal.h"
#include "rendezvous/security/credentials.h"
#include "rendezvous/store/store_wire.h"
#include "rendezvous/view/daemon_counters.h"
#include "rendezvous/view/job_history.h"

namespace regroup::rendezvous {

/// Limits on the resources that peers can make the daemon use.
struct DaemonLimits {
    /// Connections, at most half of the descriptors that this process may open.
    std::size_t sessions_max = 16384;
    /// Connections that have not yet sent a message, at most a quarter of the descriptors. Others
    /// wait in the kernel's queue: what has been done for a stranger is not thrown away when many
    /// nodes come at once. One host may have a quarter of them, so that a host that opens many
    /// keeps no other out.
    std::size_t strangers_max = 2048;
    /// Beyond this, a new job takes the place of one that has no connection and no round.
    std::size_t jobs_max = 1024;
    /// Nodes of one job.
    std::size_t nodes_max = journal::kNodesMax;
    /// Memory of all nodes of all jobs together, about. Beyond it no new node may join, and reports
    /// lose their details.
    std::size_t nodes_bytes_max = std::size_t{256} << 20U;
    /// The bytes of messages that peers have not sent or not read in full. Beyond that the host
    /// that holds the most loses its largest connection.
    std::size_t sessions_bytes_max = std::size_t{256} << 20U;
    /// The most frames that wait for a slow peer; beyond that the peer is disconnected.
    std::size_t outbox_frames_max = 256;
    /// A connection that has not joined a job within this time is closed. A joined one is closed
    /// when it has been silent for this long and for the heartbeat timeout of its job.
    Duration hello_limit = std::chrono::seconds(10);
    /// How long a closed job tells how it ended: to its nodes, and to those that were on their way
    /// to it. A node that begins later begins the job anew.
    Duration closed_retention = std::chrono::seconds(30);
    /// A job without any node is forgotten after this, or when it is joined with another policy.
    Duration empty_limit = std::chrono::minutes(10);
    http::Limits http{};
};

struct DaemonSetup;

/// Serves RendezvousCore over TCP, for any number of jobs on one port. It decodes frames into
/// events, steps the job's core, encodes the effects into bounded outboxes, and keeps one timer at
/// the cores' next deadline. It makes no decisions itself.
///
/// A peer is accepted if its socket belongs to this process's user or to root, on this host, or if
/// it proves by TLS that it has a token or a certificate.
///
/// Everything runs on the io_context's one thread. `io` and `clock` outlive the Daemon.
class Daemon {
   public:
    /// One line for the log, without newline.
    using Log = std::function<void(const std::string& line)>;
    /// Takes over a connection that speaks the store's protocol, with the bytes already read.
    using StoreHandler =
        std::function<void(boost::asio::ip::tcp::socket socket, std::string first_bytes)>;

    ~Daemon();
    Daemon(const Daemon&) = delete;
    Daemon& operator=(const Daemon&) = delete;

    [[nodiscard]] std::uint16_t port() const noexcept { return port_; }

    /// Sets the handler for connections that speak the store's protocol. Without a handler, and
    /// without DaemonSetup::serves_torchrun, they are refused.
    void set_store_handler(StoreHandler handler);

    struct EventSink {
        /// Gets each event of each job once it is kept.
        std::function<void(const std::string& job, const RecordedEvent& event)> on_event;
        /// Gets the events of a job that the journal has given, and the wall-clock time of its
        /// beginning in milliseconds since 1970. May be empty.
        std::function<void(const std::string& job, std::int64_t began_ms,
                           const JobHistory& history)>
            on_restored;
    };
    /// The sink must be usable until the daemon's end. See DaemonSetup::prepare.
    void add_event_sink(EventSink sink);
    /// The history of the job; null if there is no such job.
    [[nodiscard]] const JobHistory* history(const std::string& job) const;
    /// True if it has a journal.
    [[nodiscard]] bool keeps_jobs() const;

    /// Closes every job and accepts no more connections. `done` is called once all nodes have been
    /// told, or after `limit`.
    void stop(const std::string& author, const std::string& reason, Duration limit,
              std::function<void()> done);
    /// Releases the jobs in the journal: accepts no more connections, and calls `done` once another
    /// daemon may take over the jobs, or after `limit`.
    void resign(Duration limit, std::function<void()> done);
    /// Before the end of the process: tells waiting operators, and calls `done` once all queued
    /// messages have been handed to the kernel, or after `limit`.
    void flush(Duration limit, std::function<void()> done);

    [[nodiscard]] std::size_t sessions_count() const;
    [[nodiscard]] std::size_t http_clients_count() const;
    /// Jobs that have not ended.
    [[nodiscard]] std::size_t open_jobs() const;
    [[nodiscard]] DaemonCounters counters() const;

   private:
    struct Impl;
    friend Result<std::unique_ptr<Daemon>> open_daemon(boost::asio::io_context&, const Clock&,
                                                       DaemonSetup);

    explicit Daemon(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

    std::shared_ptr<Impl> impl_;
    std::uint16_t port_ = 0;
};

/// All that a daemon begins with.
struct DaemonSetup {
    DaemonLimits limits{};
    Daemon::Log log = [](const std::string&) {};
    std::string address{};   ///< To listen on; empty: all, IPv6 and IPv4.
    std::uint16_t port = 0;  ///< 0 picks a free one.
    /// Listens already; in place of `address` and `port`.
    std::optional<boost::asio::ip::tcp::acceptor> socket{};
    /// How peers of other hosts and users prove who they are. Without them none can.
    security::Credentials credentials{};
    /// The names by which HTTP clients may call this daemon, besides its addresses and localhost.
    std::set<std::string> http_hosts{};
    /// The dialect of store clients that do not begin with a greeting.
    store::Dialect older_dialect = store::Dialect::v1_13;
    /// Lets launchers of PyTorch meet at this daemon; see LauncherStore. They unpickle what they
    /// read, so each peer that is served can execute code on the hosts of all of them.
    bool serves_torchrun = false;
    /// Called when the daemon has its port, before its journal gives it jobs. May be empty.
    std::function<void(Daemon& daemon)> prepare{};
    /// Makes the journal, which keeps all jobs and gives those that it contains; null for none.
    /// Without a journal, jobs end with this process: their nodes form them anew with the next
    /// daemon. May be empty.
    std::function<Result<std::unique_ptr<journal::Journal>>(std::uint16_t port)> open_journal{};
    /// Gets the lines about the journal and its jobs in place of `log`. May be empty.
    Daemon::Log journal_log{};
};

/// A daemon that listens, and serves as soon as the io_context runs. `io` and `clock` outlive it.
/// Errors: those of Tls::server; system for the socket, naming the holder of a taken port if it is
/// visible; those of `open_journal`.
Result<std::unique_ptr<Daemon>> open_daemon(boost::asio::io_context& io, const Clock& clock,
                                            DaemonSetup setup);

}  // namespace regroup::rendezvous
