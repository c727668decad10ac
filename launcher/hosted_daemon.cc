// SPDX-License-Identifier: Apache-2.0
#include "launcher/hosted_daemon.h"

#include <utility>

#include "agent/process/own_limits.h"
#include "agent/text/cause_text.h"
#include "launcher/host.h"
#include "launcher/report.h"
#include "launcher/state.h"
#include "rendezvous/base/exit_code.h"
#include "rendezvous/net/listen.h"

namespace regroup::launcher {
namespace {

constexpr Duration kFlushLimit = std::chrono::seconds(1);
constexpr Duration kLingerInterval = std::chrono::milliseconds(10);

}  // namespace

HostedDaemon::HostedDaemon(boost::asio::io_context& io, const Clock& clock, RunPlan& plan, Say say)
    : io_(io), clock_(clock), plan_(plan), say_(std::move(say)), timer_(io) {}

Result<void> HostedDaemon::open() {
    if (plan_.daemon.hosting == Hosting::never) {
        return {};
    }
    Result<void> served = serve();
    if (served || !state_error_.empty()) {
        return served;
    }
    if (plan_.daemon.hosting == Hosting::if_port_free) {
        // Probably another agent of this host serves the endpoint. If another program has the port,
        // the connection fails.
        taken_port_ = plan_.daemon.endpoint.port;
        if (plan_.daemon.state.keeps_jobs()) {
            say_("--state " + plan_.daemon.state.where +
                 " is not used by this process, which does not serve " +
                 plan_.daemon.endpoint.text() + ": " + served.error().detail);
        }
        return {};
    }
    // Mostly a second launcher without a rank of its own.
    const bool others_have_ranks =
        plan_.daemon.fixed_master && plan_.agent.core.policy.nodes_max > 1;
    return Failure(served.error().code,
                   "cannot start the daemon at " + plan_.daemon.endpoint.text() + ": " +
                       served.error().detail +
                       (others_have_ranks
                            ? "; if that is node 0 of this job, give this node --node-rank=1 (and "
                              "so on), or give all nodes --rdzv-backend=c10d, which finds the "
                              "ranks itself; else choose another port"
                            : "; choose another port"));
}

bool HostedDaemon::open_late() {
    if (is_open() || taken_port_ == 0) {
        return false;
    }
    const std::string said = state_error_;
    if (!serve()) {
        if (state_error_ != said) {
            say_(state_error_);
        }
        return false;
    }
    taken_port_ = 0;
    say_("no daemon runs at " + plan_.daemon.endpoint.text() + "; this process starts one");
    return true;
}

Result<void> HostedDaemon::serve() {
    if (plan_.agent.core.policy.nodes_max > 1) {
        agent::raise_descriptor_limit();
    }
    DaemonPlan& daemon = plan_.daemon;
    auto opened = rendezvous::open_daemon(io_, clock_, setup());
    if (!opened && daemon.bind_address == "127.0.0.1" && daemon.endpoint.port == 0 &&
        state_error_.empty()) {
        // The machine has no IPv4. Use the IPv6 loopback.
        daemon.bind_address = daemon.endpoint.host = "::1";
        opened = rendezvous::open_daemon(io_, clock_, setup());
    }
    if (!opened) {
        return opened.error();
    }
    daemon_ = *std::move(opened);
    daemon.endpoint.port = daemon_->port();
    return {};
}

rendezvous::DaemonSetup HostedDaemon::setup() {
    const DaemonPlan& plan = plan_.daemon;
    rendezvous::DaemonSetup setup;
    setup.address = plan.bind_address;
    setup.port = plan.endpoint.port;
    setup.credentials = plan_.agent.daemon.credentials;
    setup.http_hosts = {full_host_name(), short_host_name(), plan.endpoint.host,
                        plan.other_name.empty() ? "localhost" : plan.other_name};
    setup.older_dialect = plan_.agent.store.dialect;
    setup.prepare = [this](rendezvous::Daemon& daemon) {
        if (prepare_) {
            prepare_(daemon, plan_.daemon.state.keeps_jobs());
        }
    };
    setup.open_journal = [this, host = plan.endpoint.host](std::uint16_t port) {
        return open_journal(rendezvous::Endpoint{host, port});
    };
    setup.journal_log = [this](const std::string& line) { say_("--state: " + line); };
    return setup;
}

// Asks again: the process that had the port at the start may have ended.
std::string HostedDaemon::port_holder() const {
    if (taken_port_ == 0) {
        return "";
    }
    const auto socket = net::listen_on(io_, plan_.daemon.bind_address, taken_port_);
    return socket ? "" : socket.error().detail;
}

Result<std::unique_ptr<journal::Journal>> HostedDaemon::open_journal(
    const rendezvous::Endpoint& endpoint) {
    StateOptions state = plan_.daemon.state;
    state.advertise = endpoint.text();
    Result<std::unique_ptr<journal::Journal>> opened = open_state(io_, clock_, state);
    if (!opened) {
        state_error_ = "--state: " + opened.error().detail;
        return Failure(opened.error().code, state_error_);
    }
    if (*opened && plan_.daemon.has_fresh_job) {
        say_("--state " + plan_.daemon.state.where +
             ": this job has no name (--rdzv-id), so the same command line begins another job");
    }
    return opened;
}

void HostedDaemon::leave(const agent::Quit& quit, std::function<void()> done) {
    done_ = std::move(done);
    if (!daemon_) {
        done_();
    } else if (quit.verdict) {
        daemon_->flush(kFlushLimit, [this] { done_(); });
    } else if (quit.exit_code == kExitRequeue) {
        leave_at_ = after(clock_.now(), plan_.agent.core.policy.shutdown_timeout);
        linger(text_of(quit.reason), false);
    } else {
        stop(text_of(quit.reason));
    }
}

/// Waits until the other nodes have left or found another daemon.
void HostedDaemon::linger(const std::string& reason, bool said) {
    timer_.expires_after(kLingerInterval);
    timer_.async_wait([this, reason, said](const boost::system::error_code& error) {
        if (error || daemon_->sessions_count() == 0 || clock_.now() >= leave_at_) {
            stop(reason);
            return;
        }
        if (!said) {
            say_(reason +
                 "; this process stays for its daemon, which other nodes need, for up to " +
                 format_duration(plan_.agent.core.policy.shutdown_timeout) +
                 " (--shutdown-timeout)");
        }
        linger(reason, true);
    });
}

/// Tells the nodes that the daemon ends with this process. A job in a journal goes on without it.
void HostedDaemon::stop(const std::string& reason) {
    if (daemon_->keeps_jobs() && daemon_->open_jobs() > 0) {
        say_(job_text(plan_.agent.core.job) + " is kept in " + plan_.daemon.state.where +
             ", and the same command line takes it up again" +
             (plan_.agent.core.policy.nodes_max == 1
                  ? ""
                  : "; its other nodes go on meanwhile, and need this one within " +
                        format_duration(plan_.agent.core.join_timeout) +
                        " (--join-timeout) once their workers wait for a round"));
        daemon_->resign(kFlushLimit, [this] { done_(); });
        return;
    }
    daemon_->stop("node " + plan_.agent.core.offer.name,
                  "the daemon ended with its host (" + reason + ")", kFlushLimit,
                  [this] { done_(); });
}

}  // namespace regroup::launcher
