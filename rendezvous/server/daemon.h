// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/result.h"
#include "rendezvous/http/limits.h"
#include "rendezvous/journal/journal.h"
#include "rendezvous/security/credentials.h"
#include "rendezvous/store/store_wire.h"
#include "rendezvous/view/job_history.h"

namespace regroup::rendezvous {

/// Limits on the resources that peers can make the daemon use.
struct DaemonLimits {
    /// Connections, at most half of the descriptors that this process may open.
    std::size_t sessions_max = 16384;
    /// The most connections that have not yet said anything that the daemon accepts, at most a
    /// quarter of the descriptors. Beyond that the oldest is closed, so that strangers take no
    /// place from members that come back.
    std::size_t strangers_max = 2048;
    /// Beyond this, a new job takes the place of one that has no connection and no round.
    std::size_t jobs_max = 1024;
    /// Memory of all nodes of all jobs together, about. Beyond it no new node may join, and reports
    /// lose their details.
    std::size_t nodes_bytes_max = std::size_t{256} << 20U;
    /// The bytes of messages that peers have not sent or not read in full. Beyond that the host
    /// that holds the most loses its largest connection.
    std::size_t sessions_bytes_max = std::size_t{256} << 20U;
    /// The most frames that wait for a slow peer; beyond that the peer is disconnected.
    std::size_t outbox_frames_max = 256;
    /// The bytes of statuses that clients have not read yet. Beyond that, operators get short ones.
    std::size_t statuses_bytes_max = std::size_t{32} << 20U;
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

/// Traffic of the control connections, payload and frame headers; for tests and benchmarks.
struct DaemonTraffic {
    std::uint64_t messages_in = 0;
    std::uint64_t messages_out = 0;
    std::uint64_t bytes_in = 0;
    std::uint64_t bytes_out = 0;
};

/// Serves RendezvousCore over TCP, for any number of jobs on one port. It decodes frames into
/// events, steps the job's core, encodes the effects into bounded outboxes, and keeps one timer at
/// the cores' next deadline. It makes no decisions itself.
///
/// A peer is accepted if its socket belongs to this process's user or to root, on this host, or if
/// it proves by TLS that it has a token or a certificate (see set_credentials).
///
/// Everything runs on the io_context's one thread. `io` and `clock` outlive the Daemon.
class Daemon {
   public:
    /// One line for the log, without newline.
    using Log = std::function<void(const std::string& line)>;
    /// Takes over a connection that speaks the store's protocol, with the bytes already read.
    using StoreHandler =
        std::function<void(boost::asio::ip::tcp::socket socket, std::string first_bytes)>;

    Daemon(boost::asio::io_context& io, const Clock& clock, const DaemonLimits& limits, Log log);
    ~Daemon();
    Daemon(const Daemon&) = delete;
    Daemon& operator=(const Daemon&) = delete;

    /// Binds, listens and begins to serve; an empty `address` means all, IPv6 and IPv4. Port 0
    /// picks a free one. Returns the port. Errors: system, naming the holder of a taken port if it
    /// is visible.
    Result<std::uint16_t> listen(const std::string& address, std::uint16_t port);
    /// The same with a socket that listens already.
    Result<std::uint16_t> listen(boost::asio::ip::tcp::acceptor acceptor);

    /// How peers of other hosts and users prove who they are. Without a call none can. To be called
    /// before `listen`. Errors: those of Tls::server.
    Result<void> set_credentials(security::Credentials credentials);

    /// Sets the handler for connections that speak the store's protocol. Without a handler, and
    /// without `serve_torchrun`, they are refused.
    void set_store_handler(StoreHandler handler);

    /// The names by which HTTP clients may call this daemon, besides its addresses and localhost.
    void set_http_hosts(const std::set<std::string>& names);

    struct EventSink {
        /// Gets each event of each job once it is kept.
        std::function<void(const std::string& job, const RecordedEvent& event)> on_event;
        /// Gets the events of a job that the journal has given, and the wall-clock time of its
        /// beginning in milliseconds since 1970.
        std::function<void(const std::string& job, std::int64_t began_ms,
                           const JobHistory& history)>
            on_restored;
    };
    /// To be called before the io_context runs. The sink must be usable until the daemon's end.
    void add_event_sink(EventSink sink);
    /// The history of the job; null if there is no such job.
    [[nodiscard]] const JobHistory* history(const std::string& job) const;

    /// Lets launchers of PyTorch meet at this daemon; see LauncherStore. They unpickle what they
    /// read, so each peer that is served can execute code on the hosts of all of them. To be called
    /// before `listen`.
    void serve_torchrun();

    /// Keeps all jobs in `journal`, and restores those that it contains. Without a journal, jobs
    /// end with this process: their nodes form them anew with the next daemon. At most once, before
    /// the io_context runs. `log` gets the lines about the journal and its jobs; if it is empty,
    /// the daemon's log does.
    void use_journal(std::unique_ptr<journal::Journal> journal, Log log = {});
    [[nodiscard]] bool keeps_jobs() const;

    /// The dialect of store clients that do not begin with a greeting. To be called before
    /// `listen`.
    void set_older_dialect(store::Dialect dialect);

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
    [[nodiscard]] const DaemonTraffic& traffic() const;

   private:
    struct Impl;
    std::shared_ptr<Impl> impl_;
};

}  // namespace regroup::rendezvous
