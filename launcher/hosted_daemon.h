// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/core/agent_events.h"
#include "launcher/run_options.h"
#include "launcher/run_plan.h"
#include "launcher/state.h"
#include "rendezvous/server/daemon.h"

namespace regroup::launcher {

/// The rendezvous of a job, in the process of one of its agents: which of them serves it, and how
/// long that process stays for the other nodes.
class HostedDaemon {
   public:
    using Say = std::function<void(const std::string& line)>;

    /// All references outlive it.
    HostedDaemon(boost::asio::io_context& io, const Clock& clock, const RunOptions& options,
                 Say say);

    /// Serves the rendezvous if `plan` says that this process is to, and writes into `plan` where.
    /// Errors: those of the socket and of --state, one line that says what to do.
    Result<void> open(RunPlan& plan);
    /// The same later, for a process that found the port taken: whoever had it may be gone. True if
    /// this process serves the rendezvous from now on.
    bool open_late(RunPlan& plan);
    [[nodiscard]] bool is_open() const noexcept { return daemon_ != nullptr; }
    /// Requires `is_open()`.
    [[nodiscard]] rendezvous::Daemon& daemon() noexcept { return *daemon_; }
    /// Its jobs are kept, where only this process can have them.
    [[nodiscard]] bool has_directory() const noexcept {
        return is_open() && is_directory(options_.state);
    }
    /// Which other process of this host has the port at this moment, if that is why it could not be
    /// had: "port 29400 is taken by ..."; or empty.
    [[nodiscard]] std::string port_holder() const;

    /// The agent here has ended like that; calls `done` when the process may. That is after the
    /// other nodes have heard of the end, or found their way without this daemon.
    void leave(const agent::Quit& quit, std::function<void()> done);
    /// Whoever waits for this process is out of patience.
    void hurry() noexcept { leave_at_ = Instant::min(); }

   private:
    Result<void> serve(RunPlan& plan);
    Result<void> keep_jobs();
    void linger(const std::string& reason, bool said);
    void stop(const std::string& reason);

    boost::asio::io_context& io_;
    const Clock& clock_;
    const RunOptions& options_;
    const Say say_;
    std::string job_;
    std::string node_;
    std::string endpoint_;
    bool alone_ = false;  // No other node will ever be in this job.
    std::unique_ptr<rendezvous::Daemon> daemon_;
    std::string bind_address_;
    std::uint16_t taken_port_ = 0;  // Somebody else had it; 0: nobody.
    std::string state_error_;       // Why this process could not serve it late, as said.
    std::function<void()> done_;
    boost::asio::steady_timer timer_;
    Instant leave_at_ = Instant::max();
};

}  // namespace regroup::launcher
