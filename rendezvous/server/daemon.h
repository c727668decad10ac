// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/result.h"
#include "rendezvous/journal/journal.h"
#include "rendezvous/store/store_wire.h"

namespace regroup::rendezvous {

/// Bounds on what strangers may make the daemon hold.
struct DaemonLimits {
    std::size_t sessions_max = 16384;
    std::size_t jobs_max = 1024;
    /// Frames that wait for a peer which does not read; one more and it is disconnected.
    std::size_t outbox_frames_max = 256;
    /// A connection that has not joined a job by then is closed; one that has, when it has been
    /// silent for this long and for its job's heartbeat timeout.
    Duration hello_limit = std::chrono::seconds(10);
    /// For so long a closed job tells late comers how it ended; then its id may be used again.
    Duration closed_retention = std::chrono::seconds(30);
    /// The same for one that had failed or been stopped before this daemon took it up.
    Duration failed_retention = std::chrono::seconds(30);
    /// A job without any node is forgotten after this, or when it is joined with another policy.
    Duration empty_limit = std::chrono::minutes(10);
};

/// What went over the control connections, payload and frame headers; for tests and benchmarks.
struct DaemonTraffic {
    std::uint64_t messages_in = 0;
    std::uint64_t messages_out = 0;
    std::uint64_t bytes_in = 0;
    std::uint64_t bytes_out = 0;
};

/// RendezvousCore behind TCP, for any number of jobs on one port. Four duties and no policy: decode
/// frames into events, step the job's core, encode its effects into bounded outboxes, keep one
/// timer at the cores' next deadline.
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
    /// picks a free one. Returns the port. Errors: system, naming who holds the port where it can
    /// be told.
    Result<std::uint16_t> listen(const std::string& address, std::uint16_t port);

    /// Where connections that speak the store's protocol go. Without a handler the daemon serves
    /// them itself; see LauncherStore.
    void set_store_handler(StoreHandler handler);

    /// Keeps all jobs in `journal`, and takes up those that it has. Without one, jobs end with this
    /// process: their nodes form them anew with the next daemon. At most once, before the
    /// io_context runs. What becomes of the journal and of the jobs in it is said by `log`, or like
    /// everything else if that is empty.
    void use_journal(std::unique_ptr<journal::Journal> journal, Log log = {});
    [[nodiscard]] bool keeps_jobs() const;

    /// What store clients speak that do not begin with a greeting. To be called before `listen`.
    void set_older_dialect(store::Dialect dialect);

    /// Closes every job for everyone and accepts no one any more. `done` is called once all have
    /// been told, or after `limit`.
    void stop(const std::string& author, const std::string& reason, Duration limit,
              std::function<void()> done);
    /// Lets go of the jobs that a journal keeps: accepts no one any more, and calls `done` once
    /// another daemon may take them up, or after `limit`.
    void resign(Duration limit, std::function<void()> done);
    /// Before the end of the process: operators who wait are told so, and `done` is called once
    /// everything said so far has been handed to the kernel, or after `limit`.
    void flush(Duration limit, std::function<void()> done);

    [[nodiscard]] std::size_t sessions_count() const;
    /// Jobs that have not ended.
    [[nodiscard]] std::size_t open_jobs() const;
    [[nodiscard]] const DaemonTraffic& traffic() const;

   private:
    struct Impl;
    std::shared_ptr<Impl> impl_;
};

}  // namespace regroup::rendezvous
