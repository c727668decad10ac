// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/core/agent_core.h"
#include "agent/health/gpu_release.h"
#include "agent/link/link_server.h"
#include "agent/process/linux_launcher.h"
#include "agent/process/output_relay.h"
#include "agent/workers/end_watch.h"
#include "agent/workers/live_worker.h"
#include "agent/workers/worker_command.h"
#include "agent/workers/worker_failure.h"
#include "agent/workers/worker_starter.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/client/endpoint.h"

namespace regroup::agent {

/// The workers of one node. Carries out the orders of an AgentCore: starts each worker
/// (WorkerStarter), exchanges messages with those that have the SDK (LinkServer), signals them, and
/// reports each end (EndWatch) with the facts that this machine knows.
///
/// A worker gets a place in a round when nothing is left of those that have ended: no process
/// (EndWatch), and no memory of a GPU (GpuRelease). One that is started ahead need not wait for
/// that before it is assigned.
///
/// One thread, which outlives the workers: the kernel kills them when it ends. All references
/// outlive this object.
class WorkerGroup {
   public:
    /// `on_event` gets the end of each worker, failed starts (from within launch()), and the
    /// messages of workers over their links. It must not destroy this object.
    WorkerGroup(boost::asio::io_context& io, const Clock& clock, LinuxLauncher& launcher,
                OutputRelay& output, const AgentConfig& config, WorkerGroupOptions options,
                std::function<void(const AgentEvent&)> on_event);

    /// Starts the fork server, if the command has one; workers then wait for its imports. Opens the
    /// link for workers with the SDK. Without it they are treated like all other workers. Errors:
    /// system, for the link.
    Result<void> open();

    /// Where workers reach the store of the round that begins now; nothing: at the master.
    void use_relay(std::optional<rendezvous::Endpoint> relay) {
        starter_.use_relay(std::move(relay));
    }
    /// Starts these workers in a round. Their predecessors must have ended. `own_address`: the
    /// address of this node on the connection to the daemon. It gives the network interface if the
    /// master is known only by name.
    void launch(const LaunchWorkers& launch, const std::string& own_address);
    /// Starts these workers ahead of a round.
    void prestart(const PrestartWorkers& start, const std::string& own_address);
    /// Gives these workers their ranks in a round.
    void assign(const Assignment& assignment, const std::vector<std::uint32_t>& local_ranks);

    void end_round(const EndRound& end);
    void pause(const PauseWorkers& pause);
    /// Sends `signal` to these workers, SIGKILL to their process groups, and wakes stopped ones.
    void end_by(int signal, const std::vector<std::uint32_t>& local_ranks);
    /// Kills the worker on which the round hangs. The arguments go into its failure.
    void kill(std::uint32_t local_rank, const std::string& reason, bool by_silence = false);
    /// Passes a signal on to all workers, except those in an ElasticLoop that do not handle it.
    void forward(int signal);
    /// The node drains: from now on, workers in an ElasticLoop ignore signals that would end them,
    /// until they are asked to end (WorkerPage::draining).
    void announce_drain();
    /// True if all workers are in an ElasticLoop and none handles the signal.
    [[nodiscard]] bool would_only_end(int signal) const;

    /// Kills all processes that former workers left behind. Blocks for some milliseconds; for
    /// seconds if a process is stuck in the kernel.
    void kill_leftovers();

    /// Asks a worker for its flight records; see worker_link::SaveRecords. `on_saved` is called
    /// once at most, and not if the worker ends before it has answered.
    void save_records(std::uint32_t local_rank, const std::string& prefix,
                      std::function<void(const worker_link::RecordsSaved&)> on_saved);

    /// The live workers, by local rank.
    [[nodiscard]] std::vector<LiveWorker> live() const;
    /// The highest step in the pages of live workers.
    [[nodiscard]] std::uint64_t highest_step() const;

   private:
    /// A worker whose end was not reported.
    struct WorkerProcess {
        std::uint32_t local_rank = 0;
        pid_t pid = 0;  ///< 0 while its start is held back, or the fork server starts it.
        RoundId launched_in = RoundId::none;
        Assignment assignment;                           ///< The last assignment.
        std::shared_ptr<SharedPage> page;                ///< Null without a link.
        std::shared_ptr<SharedCollectives> collectives;  ///< May be null.
        std::string error_file;
        bool elastic = false;
        bool stops = false;  ///< It asks in each step whether to stop.
        bool asked_to_end = false;
        std::optional<OwnReport> own_report;
        std::optional<HangKill> hang;
        bool needs_memory = false;  ///< It was started ahead, and has not begun to train.
        /// Waits for its answer to SaveRecords; else empty.
        std::function<void(const worker_link::RecordsSaved&)> on_records_saved;

        [[nodiscard]] bool would_only_end(int signal) const;
    };

    void start(const Assignment& assignment, std::uint32_t local_rank, bool ahead);
    void started(std::uint64_t key, Result<ChildProcess> child);
    /// Drops a worker that has yet to be started.
    void cancel(std::uint64_t key, int signal);
    void ended(std::uint64_t key, const WorkerEnd& end);
    /// Without the end: its place, its time, its output and its error file.
    [[nodiscard]] WorkerFailure known_of(const WorkerProcess& worker) const;
    [[nodiscard]] WorkerFailure failure_of(const WorkerProcess& worker, const WorkerEnd& end) const;
    void record(WorkerEvent::State state, const WorkerProcess& worker, int exit_code) const;

    void hear_hello(std::uint64_t key, pid_t pid, const worker_link::Hello& hello, bool is_new);
    void hear(std::uint64_t key, const worker_link::FromWorker& message);
    void open_snapshots(std::uint64_t key);

    /// The worker with this local rank, or the end.
    [[nodiscard]] std::map<std::uint64_t, WorkerProcess>::iterator at(std::uint32_t local_rank);

    boost::asio::io_context& io_;
    OutputRelay& output_;
    const AgentConfig config_;
    const WorkerGroupOptions options_;
    std::function<void(const AgentEvent&)> on_event_;
    GpuRelease gpus_;
    WorkerStarter starter_;
    EndWatch ends_;
    std::map<std::uint64_t, WorkerProcess> workers_;  ///< By a number that is never used again.
    std::uint64_t last_key_ = 0;
    std::unique_ptr<LinkServer> link_;
    bool draining_ = false;
};

}  // namespace regroup::agent
