// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/agent_core.h"
#include "agent/event_record.h"
#include "agent/output_layout.h"
#include "agent/placement/placement.h"
#include "agent/process/child_process.h"
#include "agent/process/linux_launcher.h"
#include "agent/process/oom_evidence.h"
#include "agent/process/orphan_reaper.h"
#include "agent/process/output_relay.h"
#include "rendezvous/base/clock.h"

namespace regroup::agent {

/// What every worker of this node runs.
struct WorkerCommand {
    std::string executable;  ///< Absolute.
    /// argv, the program's name first. In those from `templates_begin` on, `$local_rank` and
    /// `${local_rank}` are filled in; see substitute().
    std::vector<std::string> arguments;
    std::size_t templates_begin = 1;
    std::vector<std::string> environment;
    std::string signals_to_handle = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";  ///< For the environment.
    bool virtual_local_rank = false;                                  ///< See WorkerIdentity.
    /// CUDA_VISIBLE_DEVICES by local rank; empty: as it is inherited.
    std::vector<std::string> visible_devices;
    std::string watchdog_file;  ///< Of a Watchdog, for the environment; or empty.
    /// Where the workers run, by local rank; empty: anywhere.
    std::vector<RankPlacement> placements;
    bool sets_threads = false;  ///< OMP_NUM_THREADS by `placements`.
};

struct WorkerGroupOptions {
    std::string job;
    std::string node;       ///< The node's name.
    std::string host;       ///< Its host's short name, for prefixes.
    std::string full_host;  ///< For failure reports.
    std::string role;
    std::uint32_t workers = 1;
    std::uint32_t max_restarts = 0;
    WorkerCommand command;
    OutputOptions output;
    EventSink on_event;  ///< May be empty.
};

/// The processes of one node's workers: started together, each with its rank, environment, place
/// and output; signalled together; each end described as far as this machine can tell.
///
/// One thread, which outlives the workers: they are killed when it ends. References outlive this.
class WorkerGroup {
   public:
    /// `on_exit` is told of each worker's end, and of one that could not be started (from within
    /// launch()). It must not call this object.
    WorkerGroup(boost::asio::io_context& io, const Clock& clock, OutputRelay& output,
                WorkerGroupOptions options, std::function<void(const WorkerExited&)> on_exit);

    /// Starts all workers. Those of an earlier round must have ended. `own_address` is this node's
    /// on the connection to the daemon: where the master is known by a name, it tells the
    /// interface.
    void launch(const Assignment& assignment, const std::string& own_address);

    /// Asks all workers to end, with whatever shares their process groups; stopped ones are woken.
    void end_by(int signal);
    /// Passes a signal on.
    void forward(int signal);

    /// Kills what former workers left behind, wherever it has moved to. Blocks for some
    /// milliseconds; for seconds if a process is stuck in the kernel.
    void kill_leftovers();

   private:
    void start(const Assignment& assignment, std::uint32_t local_rank);
    [[nodiscard]] ProcessSpec spec_of(const WorkerIdentity& identity,
                                      const OutputRelay::Pipes& pipes) const;
    [[nodiscard]] WorkerIdentity identity_of(const Assignment& assignment,
                                             std::uint32_t local_rank) const;
    void make_folder(const std::filesystem::path& folder);
    void exited(const Assignment& assignment, std::uint32_t local_rank, ExitStatus status);
    void not_started(const Assignment& assignment, std::uint32_t local_rank, const Failure& why);
    [[nodiscard]] WorkerFailure failure_of(const Assignment& assignment, std::uint32_t local_rank);
    void record(WorkerEvent::State state, const Assignment& assignment, std::uint32_t local_rank,
                pid_t pid, int exit_code) const;

    const Clock& clock_;
    OutputRelay& output_;
    const WorkerGroupOptions options_;
    std::function<void(const WorkerExited&)> on_exit_;
    LinuxLauncher launcher_;
    OrphanReaper reaper_;
    std::map<std::uint32_t, ChildProcess> children_;    ///< By local rank.
    std::map<std::uint32_t, std::string> error_files_;  ///< Likewise.
    std::filesystem::path made_folder_;
    std::string network_interface_;      ///< Towards the master of the last launch.
    std::optional<OomWatch> oom_watch_;  ///< Since the last launch.
    bool asked_ = false;                 ///< To end, since then;
    bool forced_ = false;                ///< and by SIGKILL.
};

}  // namespace regroup::agent
