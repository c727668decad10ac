// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/agent.h"
#include "agent/process/output_relay.h"
#include "agent/process/quit_signals.h"
#include "agent/process/warden.h"
#include "agent/workers/watchdog.h"
#include "launcher/command.h"
#include "launcher/event_log.h"
#include "launcher/hosted_daemon.h"
#include "launcher/probe_port.h"
#include "launcher/run_plan.h"
#include "launcher/ssh/supervisor.h"
#include "launcher/systemd/service_manager.h"

namespace regroup::launcher {

/// The node's lines begin so: those of a node on another host need its name.
[[nodiscard]] std::string own_prefix(const ssh::Supervisor* supervisor);

/// The signals that the node listens to: those that end the run, and SIGUSR1 and SIGUSR2, which are
/// passed on to the workers.
[[nodiscard]] std::vector<int> signals_of(const RunPlan& plan);

/// The agent's process. It owns the objects of one node, in order of dependence.
class Node {
   public:
    /// `supervisor` may be null, and outlives it.
    Node(RunPlan plan, ServiceManager manager, ssh::Supervisor* supervisor);

    /// Runs the node to its end. One use.
    CommandEnd run(agent::Warden& warden);

   private:
    Result<void> open();
    Result<void> start(agent::Warden& warden);
    agent::OnJobLine job_lines();
    [[nodiscard]] agent::AgentConfig agent_config() const;
    agent::AgentOptions agent_options(agent::Warden& warden);
    Result<void> open_probes();
    [[nodiscard]] ProbePort::State probe_state() const;
    void tell_manager();
    void record(const agent::WorkerEvent& event);
    Result<agent::QuitSignals> listen_for_signals(int warden_fd);
    void obey(int signal);
    void leave_by(int signal);
    void end(const agent::Quit& quit);
    [[nodiscard]] std::string endpoint_note(const agent::Quit& quit) const;

    const SteadyClock clock_;
    ssh::Supervisor* const supervisor_;
    RunPlan plan_;
    boost::asio::io_context io_{1};
    ServiceManager manager_;
    agent::OutputRelay output_;
    std::unique_ptr<EventLog> event_log_;  // May be null.
    HostedDaemon daemon_;
    std::unique_ptr<agent::Watchdog> watchdog_;
    std::unique_ptr<agent::Agent> agent_;
    std::unique_ptr<ProbePort> probes_;  // May be null.
    std::unique_ptr<ssh::Listener> listener_;
    bool signalled_ = false;
    /// The next SIGTERM of launch-ssh means that the time to save is over; Slurm's does not.
    const bool repeats_sigterm_;
    CommandEnd ending_;  ///< Until there is a verdict or another reason: failed.
};

}  // namespace regroup::launcher
