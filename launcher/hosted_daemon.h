// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/core/agent_events.h"
#include "launcher/run_plan.h"
#include "launcher/state.h"
#include "rendezvous/server/daemon.h"

namespace regroup::launcher {

/// The rendezvous daemon of a job in the process of one of its agents. Decides whether this process
/// serves it, and how long the process stays for the other nodes.
class HostedDaemon {
   public:
    using Say = std::function<void(const std::string& line)>;

    /// All references outlive it.
    HostedDaemon(boost::asio::io_context& io, const Clock& clock, RunPlan& plan, Say say);

    /// `prepare` gets each daemon that has its port, before it serves. `restores`: it keeps a
    /// journal.
    void on_daemon(std::function<void(rendezvous::Daemon& daemon, bool restores)> prepare) {
        prepare_ = std::move(prepare);
    }
    /// Starts the daemon if the plan asks for it, and writes its port into the plan. Errors: those
    /// of the socket and of --state, one line that says what to do.
    Result<void> open();
    /// The same later, for a process that found the port taken. True if the port was free now and
    /// this process has started the daemon.
    bool open_late();
    [[nodiscard]] bool is_open() const noexcept { return daemon_ != nullptr; }
    /// Requires `is_open()`.
    [[nodiscard]] rendezvous::Daemon& daemon() noexcept { return *daemon_; }
    /// True if the daemon keeps its jobs in a directory, which only one process can use.
    [[nodiscard]] bool has_directory() const noexcept {
        return is_open() && plan_.daemon.state.is_directory();
    }
    /// "port 29400 is taken by ..." if another process of this host has the port now; else empty.
    [[nodiscard]] std::string port_holder() const;

    /// Call when the agent has ended. Calls `done` when this process may end: the other nodes have
    /// heard of the end, or have found another daemon.
    void leave(const agent::Quit& quit, std::function<void()> done);
    /// Ends the wait of leave() at once.
    void hurry() noexcept { leave_at_ = Instant::min(); }

   private:
    Result<void> serve();
    [[nodiscard]] rendezvous::DaemonSetup setup();
    Result<std::unique_ptr<journal::Journal>> open_journal(const rendezvous::Endpoint& endpoint);
    void linger(const std::string& reason, bool said);
    void stop(const std::string& reason);

    boost::asio::io_context& io_;
    const Clock& clock_;
    RunPlan& plan_;
    const Say say_;
    std::function<void(rendezvous::Daemon&, bool)> prepare_;  // May be empty.
    std::unique_ptr<rendezvous::Daemon> daemon_;
    std::uint16_t taken_port_ = 0;  // Taken by another process at the start; else 0.
    std::string state_error_;       // The last error of --state; empty if there was none.
    std::function<void()> done_;
    boost::asio::steady_timer timer_;
    Instant leave_at_ = Instant::max();
};

}  // namespace regroup::launcher
