// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/core/agent_core.h"
#include "agent/link/death_watch.h"
#include "agent/link/link_server.h"
#include "agent/output/output_layout.h"
#include "agent/placement/placement.h"
#include "agent/process/child_process.h"
#include "agent/process/fork_server.h"
#include "agent/process/linux_launcher.h"
#include "agent/process/oom_evidence.h"
#include "agent/process/orphan_reaper.h"
#include "agent/process/output_relay.h"
#include "agent/process/proc_files.h"
#include "agent/workers/event_record.h"
#include "agent/workers/live_worker.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/client/endpoint.h"

namespace regroup::agent {

/// The command of the workers of this node.
struct WorkerCommand {
    std::string executable;  ///< Absolute.
    /// argv, with the program's name first. From `templates_begin` on, `${local_rank}` is replaced:
    /// by substitute_braced(), or for torchrun by substitute().
    std::vector<std::string> arguments;
    std::size_t templates_begin = 1;
    bool templates_of_torchrun = false;
    std::vector<std::string> environment;
    /// For TORCHELASTIC_SIGNALS_TO_HANDLE.
    std::string signals_to_handle = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";
    bool virtual_local_rank = false;  ///< See WorkerIdentity.
    /// CUDA_VISIBLE_DEVICES by local rank. Empty: inherited.
    std::vector<std::string> visible_devices;
    std::string watchdog_file;  ///< FIFO of the Watchdog; may be empty.
    /// Placement of the workers, by local rank. Empty: not bound.
    std::vector<RankPlacement> placements;
    bool sets_threads = false;  ///< Set OMP_NUM_THREADS from `placements`.
    /// Python modules that a fork server imports. Empty: no fork server. Else `arguments` are those
    /// of a Python interpreter.
    std::vector<std::string> preload;
    /// Index in `arguments` of the end of the interpreter's options.
    std::size_t python_program_begin = 1;
};

struct WorkerGroupOptions {
    std::string host;       ///< Short name of the host, for prefixes.
    std::string full_host;  ///< For failure reports.
    WorkerCommand command;
    OutputOptions output;
    EventSink on_event;  ///< May be empty.
};

/// The worker processes of one node. Starts each with its rank, environment, placement and output;
/// exchanges messages with those that have the SDK; signals them; and reports each end with the
/// facts that this machine knows.
///
/// An end is reported as soon as it is certain, before the kernel has freed the memory of the
/// process: for a worker with the SDK within a fraction of a millisecond (DeathWatch), for a worker
/// that was asked to end when its last thread has stopped. The process group gets SIGKILL when the
/// end is reported. Other processes that the worker left behind are killed when it is reaped.
///
/// A signal goes to the worker's own process, whose helpers, such as those that load data, it may
/// need for saving its state. When that process has ended because of it, its children in its
/// process group get the signal, later their children, and so on. The end is reported when nothing
/// is left: see WorkerEnding.
///
/// One thread, which outlives the workers: the kernel kills them when it ends. All references
/// outlive this object.
class WorkerGroup {
   public:
    /// `on_event` gets the end of each worker, failed starts (from within launch()), and the
    /// messages of workers over their links. It must not destroy this object.
    WorkerGroup(boost::asio::io_context& io, const Clock& clock, OutputRelay& output,
                const AgentConfig& config, WorkerGroupOptions options,
                std::function<void(const AgentEvent&)> on_event);

    /// Opens the link for workers with the SDK. Without it they are treated like all other workers.
    /// Errors: system.
    Result<void> open_link();

    /// Starts the fork server, if the command has one. Workers then wait for its imports.
    void start_fork_server();

    /// Where workers reach the store of the round that begins now; nothing: at the master.
    void use_relay(std::optional<rendezvous::Endpoint> relay) { relay_ = std::move(relay); }
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

    /// For starting tools that inspect workers.
    [[nodiscard]] LinuxLauncher& launcher() noexcept { return launcher_; }

    /// The live workers, by local rank.
    [[nodiscard]] std::vector<LiveWorker> live() const;
    /// The highest step in the pages of live workers.
    [[nodiscard]] std::uint64_t highest_step() const;

   private:
    struct Process {
        std::uint32_t local_rank = 0;
        RoundId launched_in = RoundId::none;
        Assignment assignment;                ///< The last assignment.
        std::optional<ChildProcess> child;    ///< None yet while the fork server starts it.
        std::optional<std::uint64_t> launch;  ///< Of the fork server, until then.
        std::shared_ptr<SharedPage> page;
        std::string error_file;
        std::optional<worker_link::Fatal> fatal;  ///< Its own report of its end.
        /// Waits for its answer to SaveRecords; else empty.
        std::function<void(const worker_link::RecordsSaved&)> on_records_saved;
        bool announced = false;  ///< It reported before it was asked to end.
        std::string hung;        ///< The reason, if it was killed for a hang.
        bool hung_by_silence = false;
        bool attached = false;  ///< The process itself has attached, not a child.
        bool elastic = false;
        int asked_by = 0;     ///< The signal by which it was asked to end; 0: it was not.
        bool forced = false;  ///< It was sent SIGKILL.
        std::optional<ExitStatus> ended;  ///< The rest of its process group has time to follow it.
        std::set<pid_t> signalled;        ///< Those of the rest that were sent the signal.
        bool waitable = false;            ///< The kernel has told the end of its own process.
        bool told = false;                ///< Its end was reported; it must still be reaped.
        int looks = 0;                    ///< Remaining checks after its page was marked dead.
    };

    void start(const Assignment& assignment, std::uint32_t local_rank, bool ahead);
    void signal(std::uint64_t key, int signal);
    void send(Process& process, int signal);
    /// To the rest of the process group, as far as it has no living parent in it.
    void signal_rest(Process& process, int signal);
    [[nodiscard]] static bool would_only_end(const Process& process, int signal);
    [[nodiscard]] ProcessSpec spec_of(const WorkerIdentity& identity,
                                      const OutputRelay::Pipes& pipes, bool reads_stdin) const;
    [[nodiscard]] WorkerIdentity identity_of(const Assignment& assignment,
                                             std::uint32_t local_rank) const;
    void choose_interface(const Assignment& assignment, const std::string& own_address);
    void make_folder(const std::filesystem::path& folder);
    void begin_records();
    void open_files_soon();
    void open_files_now();
    void execute(std::uint64_t key, const ProcessSpec& spec);
    void fork(std::uint64_t key, ProcessSpec spec, OutputRelay::Pipes pipes);
    void started(std::uint64_t key, ChildProcess child);
    void not_started(std::uint64_t key, const Failure& why);

    void hear_hello(std::uint64_t key, pid_t pid, bool elastic, bool is_new);
    void hear(std::uint64_t key, const worker_link::FromWorker& message);

    void reaped(std::uint64_t key, ExitStatus status);
    /// The worker's own process has ended, or its end is certain.
    void own_process_ended(std::uint64_t key, ExitStatus status);
    /// True while the rest of its process group has time to end.
    [[nodiscard]] bool rest_has_time(std::uint64_t key, ExitStatus status);
    [[nodiscard]] std::vector<ProcessEntry> rest_of(const Process& process) const;
    /// Kills what the worker, which the kernel has told to have ended, left behind, and reaps it.
    void bury(std::uint64_t key, ExitStatus status);
    /// The page of the worker is marked dead.
    void marked_dead(std::uint64_t key);
    [[nodiscard]] static bool wants_look(const Process& process);
    void look_soon();
    void look_again();
    /// Reports the end of the worker if it is certain.
    void look_at(std::uint64_t key);
    void tell_end(std::uint64_t key, ExitStatus status);
    /// Kills processes that ended workers left behind, except `spared` and their descendants.
    void sweep(const std::set<pid_t>& spared);
    [[nodiscard]] WorkerFailure failure_of(const Process& process);
    [[nodiscard]] WorkerFailure failure_of(const Process& process, ExitStatus status);
    /// Adds the worker's own report of its failure.
    static void add_own_words(const Process& process, WorkerFailure& failure);
    void record(WorkerEvent::State state, const Process& process, int exit_code) const;
    /// The key of the live worker with this local rank, or 0.
    [[nodiscard]] std::uint64_t living(std::uint32_t local_rank) const;

    boost::asio::io_context& io_;
    const Clock& clock_;
    OutputRelay& output_;
    const AgentConfig config_;
    const WorkerGroupOptions options_;
    std::function<void(const AgentEvent&)> on_event_;
    const UniqueFd no_input_;  ///< /dev/null, for workers that do not read stdin.
    LinuxLauncher launcher_;
    OrphanReaper reaper_;
    std::optional<ForkServer> fork_server_;
    std::map<std::uint64_t, Process> processes_;  ///< By a unique number.
    std::uint64_t last_key_ = 0;
    std::unique_ptr<LinkServer> link_;
    std::unique_ptr<DeathWatch> deaths_;
    boost::asio::steady_timer look_timer_;
    Duration look_interval_{};
    boost::asio::steady_timer files_timer_;
    bool draining_ = false;
    bool files_wanted_ = false;
    std::filesystem::path made_folder_;
    std::optional<rendezvous::Endpoint> relay_;
    std::string network_interface_;      ///< The interface to the master of the last launch.
    std::optional<OomWatch> oom_watch_;  ///< Counts since the last round began.
};

}  // namespace regroup::agent
