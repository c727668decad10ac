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
#include "agent/event_record.h"
#include "agent/link/death_watch.h"
#include "agent/link/link_server.h"
#include "agent/live_worker.h"
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
    /// argv, the program's name first. In those from `templates_begin` on, `${local_rank}` is
    /// filled in: by substitute_braced(), or as torchrun does it by substitute().
    std::vector<std::string> arguments;
    std::size_t templates_begin = 1;
    bool templates_of_torchrun = false;
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

/// The processes of one node's workers, each with its rank, environment, place and output; talked
/// to, if they have the SDK, and signalled; each end described as far as this machine can tell.
///
/// A worker's end is known, and told, as soon as it is certain: for one with the SDK within a
/// fraction of a millisecond (DeathWatch), for one that was asked to end a moment after the last of
/// its threads has stopped running. What remains is the kernel's work of freeing its memory, which
/// is faster than any successor fills its own; nobody waits for that. Its group gets SIGKILL when
/// its end is told; what else it has left behind ends when it is reaped.
///
/// One thread, which outlives the workers: they are killed when it ends. References outlive this.
class WorkerGroup {
   public:
    /// `on_event` is told of each worker's end, of one that could not be started (from within
    /// launch()), and of what workers say over their links. It must not destroy this object.
    WorkerGroup(boost::asio::io_context& io, const Clock& clock, OutputRelay& output,
                WorkerGroupOptions options, std::function<void(const AgentEvent&)> on_event);

    /// Opens the link for workers with the SDK. Without it they are as all others. Errors: system.
    Result<void> open_link();

    /// Starts these workers of a round. Those that had their places must have ended. `own_address`
    /// is this node's on the connection to the daemon: where the master is known by a name, it
    /// tells the interface.
    void launch(const LaunchWorkers& launch, const std::string& own_address);
    /// Starts these ahead of any round.
    void prestart(const PrestartWorkers& start, const std::string& own_address);
    /// Tells these their places in a round.
    void assign(const Assignment& assignment, const std::vector<std::uint32_t>& local_ranks);

    void end_round(const EndRound& end);
    void pause(const PauseWorkers& pause);
    /// Asks workers to end, with whatever shares their process groups; stopped ones are woken.
    void end_by(int signal, const std::vector<std::uint32_t>& local_ranks);
    /// Ends one by force, on which the round hangs; both go into its failure.
    void kill(std::uint32_t local_rank, const std::string& reason, bool by_silence = false);
    /// Passes a signal on to all but those with the SDK's loop that it would only end.
    void forward(int signal);
    /// The node is to leave: signals that would end workers with the loop do so no more before they
    /// are asked to (WorkerPage::draining).
    void announce_drain();
    /// There is nobody to pass it on to, for all have the loop and none heeds such a signal.
    [[nodiscard]] bool would_only_end(int signal) const;

    /// Kills what former workers left behind, wherever it has moved to. Blocks for some
    /// milliseconds; for seconds if a process is stuck in the kernel.
    void kill_leftovers();

    /// For programs that look at workers.
    [[nodiscard]] LinuxLauncher& launcher() noexcept { return launcher_; }

    /// By local rank.
    [[nodiscard]] std::vector<LiveWorker> live() const;
    /// The furthest step of which a living worker has the state, as their pages say.
    [[nodiscard]] std::uint64_t highest_step() const;

   private:
    struct Process {
        std::uint32_t local_rank = 0;
        RoundId launched_in = RoundId::none;
        Assignment assignment;  ///< The last one.
        std::optional<ChildProcess> child;
        std::shared_ptr<SharedPage> page;
        std::string error_file;
        std::optional<worker_link::Fatal> fatal;  ///< What it said of its own end,
        bool announced = false;                   ///< first before it was asked to end.
        std::string hung;                         ///< Why it was killed, if for a hang.
        bool hung_by_silence = false;
        bool attached = false;  ///< The process itself, not a child of its.
        bool elastic = false;
        bool asked = false;   ///< To end;
        bool forced = false;  ///< and by SIGKILL.
        bool told = false;    ///< Its end: only to be reaped.
        int looks = 0;        ///< How often it is still asked after, for its page says it has died.
    };

    void start(const Assignment& assignment, std::uint32_t local_rank, bool ahead);
    void signal(Process& process, int signal);
    [[nodiscard]] static bool would_only_end(const Process& process, int signal);
    [[nodiscard]] ProcessSpec spec_of(const WorkerIdentity& identity,
                                      const OutputRelay::Pipes& pipes) const;
    [[nodiscard]] WorkerIdentity identity_of(const Assignment& assignment,
                                             std::uint32_t local_rank) const;
    void choose_interface(const Assignment& assignment, const std::string& own_address);
    void make_folder(const std::filesystem::path& folder);
    void begin_records();
    void open_files_soon();
    void open_files_now();
    void not_started(Process& process, const Failure& why);

    void hear_hello(std::uint64_t key, pid_t pid, bool elastic, bool is_new);
    void hear(std::uint64_t key, const worker_link::FromWorker& message);

    void reaped(std::uint64_t key, ExitStatus status);
    /// Its page says that it has died.
    void marked_dead(std::uint64_t key);
    void look_soon();
    void look_again();
    /// Tells its end if it is certain by now.
    void look_at(std::uint64_t key);
    void tell_end(std::uint64_t key, ExitStatus status);
    /// Kills what the dead have left behind, and nothing of the living.
    void sweep(const std::set<pid_t>& spared);
    [[nodiscard]] WorkerFailure failure_of(const Process& process);
    [[nodiscard]] WorkerFailure failure_of(const Process& process, ExitStatus status);
    /// Why it failed, as it said itself.
    static void add_own_words(const Process& process, WorkerFailure& failure);
    void record(WorkerEvent::State state, const Process& process, int exit_code) const;
    /// Who has its place.
    [[nodiscard]] Process* living(std::uint32_t local_rank);

    boost::asio::io_context& io_;
    const Clock& clock_;
    OutputRelay& output_;
    const WorkerGroupOptions options_;
    std::function<void(const AgentEvent&)> on_event_;
    LinuxLauncher launcher_;
    OrphanReaper reaper_;
    std::map<std::uint64_t, Process> processes_;  ///< By a number that is never used again.
    std::uint64_t last_key_ = 0;
    std::unique_ptr<LinkServer> link_;
    std::unique_ptr<DeathWatch> deaths_;
    boost::asio::steady_timer look_timer_;
    Duration look_interval_{};
    boost::asio::steady_timer files_timer_;
    bool draining_ = false;
    bool files_wanted_ = false;
    std::filesystem::path made_folder_;
    std::string network_interface_;      ///< Towards the master of the last launch.
    std::optional<OomWatch> oom_watch_;  ///< Since the last round began.
};

}  // namespace regroup::agent
