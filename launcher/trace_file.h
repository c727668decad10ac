// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/base/clock.h"
#include "rendezvous/files/background.h"
#include "rendezvous/server/daemon.h"
#include "rendezvous/view/job_history.h"

namespace regroup::launcher {

/// The file of --trace: the trace of one job of the daemon in this process. It is written anew,
/// as a whole, some seconds after something has happened, and at the end. A thread of its own makes
/// and writes it.
class TraceFile {
   public:
    using Say = std::function<void(const std::string& line)>;

    static constexpr Duration kInterval = std::chrono::seconds(10);
    /// Of the lines that are kept; the oldest go first.
    static constexpr std::size_t kBytesMax = std::size_t{32} << 20U;

    /// `io` outlives it. `say` gets a trouble of the file, once.
    TraceFile(boost::asio::io_context& io, std::string path, std::string job, Say say);

    /// Traces the job of this daemon from now on. Both outlive each other's use: the daemon must
    /// not be used after the end of this object, and finish() must come before its own end.
    void follow(rendezvous::Daemon& daemon);
    /// Writes the last trace and waits for the disk, for two seconds at most.
    void finish();

   private:
    void add(const std::shared_ptr<const std::string>& line, std::int64_t wall_ms, Instant at);
    void arm();
    void write();

    boost::asio::io_context& io_;
    const std::string path_;
    const std::string job_;
    const Say say_;
    rendezvous::Daemon* daemon_ = nullptr;
    std::deque<std::shared_ptr<const std::string>> lines_;
    std::size_t bytes_ = 0;
    std::int64_t began_ms_ = 0;
    bool is_armed_ = false;
    bool is_told_ = false;
    boost::asio::steady_timer timer_;
    std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
    files::Background background_;
};

}  // namespace regroup::launcher
