// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/link/death_watch.h"
#include "agent/process/child_process.h"
#include "agent/process/linux_launcher.h"
#include "agent/process/oom_evidence.h"
#include "agent/process/orphan_reaper.h"
#include "agent/process/proc_files.h"
#include "rendezvous/base/clock.h"

namespace regroup::agent {

/// How a worker ended, as its process shows it.
struct WorkerEnd {
    ExitStatus status;
    std::string oom_evidence{};  ///< See OomWatch; not for a SIGKILL of ours.
};

/// The processes of the workers of one node: signals them, and says when each has ended, and how.
///
/// An end is told as soon as it is certain, before the kernel has freed the memory of the process:
/// for a worker with the SDK within a fraction of a millisecond (DeathWatch), for a worker that was
/// asked to end when its last thread has stopped. The process group gets SIGKILL when the end is
/// told. Other processes that the worker left behind are killed when it is reaped, or before a
/// successor gets its place.
///
/// A signal goes to the worker's own process, whose helpers, such as those that load data, it may
/// need for saving its state. When that process has ended because of it, its children in its
/// process group get the signal, later their children, and so on. The end is told when nothing is
/// left.
class EndWatch {
   public:
    /// Called with the key of the worker. They may call this object, but must not destroy it.
    struct Handlers {
        /// The worker's own process has ended on request; the rest of its process group has time to
        /// follow it. Called once at most, before on_end.
        std::function<void(std::uint64_t key, const WorkerEnd& end)> on_ending;
        /// Nothing is left of the worker. Called once, unless it was dropped.
        std::function<void(std::uint64_t key, const WorkerEnd& end)> on_end;
        /// Processes that workers left behind were killed.
        std::function<void(const std::set<pid_t>& pids)> on_killed;
        std::function<void(const std::string& line)> say;
    };

    /// All references outlive this object.
    EndWatch(boost::asio::io_context& io, const Clock& clock, LinuxLauncher& launcher,
             Handlers handlers);

    /// Lets watch_page() work. Errors: system.
    Result<void> open();
    /// A round begins: earlier kills by the kernel do not explain ends in it.
    void begin_round();

    /// A worker is being started.
    void expect(std::uint64_t key) { processes_[key]; }
    void started(std::uint64_t key, ChildProcess child);
    /// The worker never had a process.
    void drop(std::uint64_t key) { processes_.erase(key); }

    /// The worker's own process holds the robust futex of this page.
    void watch_page(std::uint64_t key, std::shared_ptr<SharedPage> page);
    /// Peers of an elastic worker stay when it ends, so what it left behind is killed at once.
    void set_elastic(std::uint64_t key, bool elastic) { processes_.at(key).elastic = elastic; }

    /// Sends `signal` to the worker, SIGKILL to its process group, and wakes stopped processes.
    void ask_to_end(std::uint64_t key, int signal);
    /// Kills the process group of a worker that was not asked to end.
    void kill(std::uint64_t key);
    /// Passes on a signal that need not end the worker.
    void forward(std::uint64_t key, int signal) { send(processes_.at(key), signal); }
    /// A worker gets a place, perhaps that of one that has ended: kills what ended workers left
    /// behind, unless that is done. Does not wait for workers that still end. Blocks for some
    /// milliseconds; for seconds if a process is stuck in the kernel.
    void clear_places();
    /// Kills all descendants of this process. Blocks as clear_places() does.
    void kill_leftovers() { sweep({}, {}); }

    /// True if the worker's own process has started, and its end is not certain.
    [[nodiscard]] bool is_running(std::uint64_t key) const;

   private:
    enum class Stage : std::uint8_t {
        starting,  ///< There is no process yet.
        running,
        /// The own process ends for certain, and the rest of its process group has time to follow.
        ending,
        ended,  ///< The same, and the kernel has told the end of the own process.
        told,   ///< The end was told; the process must still be reaped.
    };
    struct Process {
        Stage stage = Stage::starting;
        std::optional<ChildProcess> child;
        ExitStatus status;  ///< Since `ending`.
        bool elastic = false;
        int asked_by = 0;           ///< The signal by which it was asked to end; 0: it was not.
        bool forced = false;        ///< It was sent SIGKILL.
        std::set<pid_t> signalled;  ///< Those of the rest that were sent the signal.
        int looks = 0;              ///< Remaining checks after its page was marked dead.

        [[nodiscard]] bool rest_lives() const noexcept {
            return stage == Stage::ending || stage == Stage::ended;
        }
        [[nodiscard]] bool wants_look() const noexcept {
            return stage != Stage::told && (asked_by != 0 || rest_lives() || looks > 0);
        }
    };

    void signal(Process& process, int signal);
    void send(Process& process, int signal);
    /// To the rest of the process group, as far as it has no living parent in it.
    void signal_rest(Process& process, int signal);
    [[nodiscard]] std::vector<ProcessEntry> rest_of(const Process& process) const;

    /// The worker's own process has ended, or its end is certain. `told`: by the kernel.
    void own_process_ended(std::uint64_t key, ExitStatus status, bool told);
    /// True while the rest of its process group has time to end.
    [[nodiscard]] bool rest_has_time(std::uint64_t key, ExitStatus status, bool told);
    /// Kills what the worker, which the kernel has told to have ended, left behind, and reaps it.
    void bury(std::uint64_t key, ExitStatus status);
    void tell(std::uint64_t key, ExitStatus status);
    [[nodiscard]] WorkerEnd end_of(const Process& process, ExitStatus status);
    /// Kills the processes that ended workers left behind.
    void sweep_leftovers();
    /// Kills all descendants of this process, except `spared` with theirs, and except `ending`.
    void sweep(const std::set<pid_t>& spared, const std::set<pid_t>& ending);

    /// The page of the worker is marked dead.
    void marked_dead(std::uint64_t key);
    void look_soon();
    void look_again();
    /// Tells the end of the worker if it is certain.
    void look_at(std::uint64_t key);

    const Clock& clock_;
    LinuxLauncher& launcher_;
    Handlers handlers_;
    boost::asio::io_context& io_;
    std::map<std::uint64_t, Process> processes_;  ///< By key.
    bool may_have_leftovers_ = false;             ///< A worker has ended since the last sweep.
    OrphanReaper orphans_;
    std::unique_ptr<DeathWatch> deaths_;  ///< Null before open().
    boost::asio::steady_timer look_timer_;
    Duration look_interval_{};
    std::optional<OomWatch> oom_watch_;  ///< Counts since the last round began.
};

}  // namespace regroup::agent
