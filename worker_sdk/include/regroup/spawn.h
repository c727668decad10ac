// SPDX-License-Identifier: Apache-2.0
// Starts several processes that run one function, without a launcher.
#pragma once

#include <regroup/error.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace regroup {

struct SpawnOptions {
    /// True makes the processes one world on this machine: sets RANK, LOCAL_RANK, WORLD_SIZE,
    /// LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT in each. A thread of the parent serves their
    /// store until the last process has ended. So Context::from_environment() and
    /// ProcessGroup::create() work in the function as they do under a launcher. False leaves the
    /// environment unchanged.
    bool set_environment = true;
    /// The time between SIGTERM and SIGKILL for processes that must end because another one failed.
    std::chrono::nanoseconds grace = std::chrono::seconds(10);
    /// If only processes that lost a peer (see SpawnedProcesses::join) have failed, join() waits
    /// this long for the failure of the peer itself before it ends the others.
    std::chrono::nanoseconds cause_wait = std::chrono::seconds(2);
};

/// A spawned process failed. If it threw an exception, `what()` ends with the sentence of that
/// exception, and `code()` is the code of an Error, else `closed`.
class SpawnError : public Error {
   public:
    struct Process {
        std::uint32_t index = 0;
        int pid = 0;
        int exit_code = 0;  ///< Meaningless if `signal` is not 0; -1 if it cannot be known.
        int signal = 0;     ///< The signal that ended it, or 0.
    };

    SpawnError(Errc code, const std::string& detail, const Process& process)
        : Error(code, detail), process_(process) {}

    [[nodiscard]] const Process& process() const noexcept { return process_; }

   private:
    Process process_;
};

/// The function of each process; the argument is its index, from 0 to nprocs - 1.
using SpawnFunction = std::function<void(std::uint32_t index)>;

/// Processes that start together and end together. When join() finds that one has failed, the
/// others get SIGTERM, and SIGKILL after the grace. A process that has already reported its end
/// gets no SIGTERM. The processes end with this object and with the thread that started them,
/// however that ends; a forked child of the starting process leaves them alone. Used by that thread
/// alone; may be moved.
class SpawnedProcesses {
   public:
    struct State;

    explicit SpawnedProcesses(std::shared_ptr<State> state) noexcept;
    SpawnedProcesses(SpawnedProcesses&& other) noexcept;
    SpawnedProcesses& operator=(SpawnedProcesses&& other) noexcept;
    /// Ends the processes that still run, as above, and waits for them.
    ~SpawnedProcesses();

    /// By index.
    [[nodiscard]] std::vector<int> pids() const;

    /// Waits until all have ended, and throws SpawnError for the one that failed first. A process
    /// fails if it throws, exits with another code than 0, or is ended by a signal. A process that
    /// only lost a peer (Errc `disconnected`, `fenced` or `deadline_exceeded`) is not reported if
    /// another one failed for its own reasons before it or within SpawnOptions::cause_wait after
    /// it.
    void join();

    /// The same within `limit`: returns false if some processes still run then.
    [[nodiscard]] bool join_for(std::chrono::nanoseconds limit);

   private:
    std::shared_ptr<State> state_;
};

/// Starts `nprocs` processes of `function`. Each is a fork of this process, so it has a copy of the
/// caller's memory. When the function returns, the process ends by _exit, without running
/// destructors of static objects. A std::exception from the function ends the process with code 1
/// and is reported to the parent; any other exception ends it by SIGABRT.
///
/// Throws Error: `invalid_argument` if `nprocs` is 0, or if this process has more than one thread,
/// since a fork copies only the calling thread and leaves the locks of the others locked. The same
/// if this process has initialised CUDA, which then fails in every fork. So spawn before you form a
/// group, before libraries start threads, and before you use a GPU; cuda::availability() may come
/// before. Throws `system` if no more processes can be started.
[[nodiscard]] SpawnedProcesses start_processes(const SpawnFunction& function, std::uint32_t nprocs,
                                               const SpawnOptions& options = {});

/// start_processes, then join.
void spawn(const SpawnFunction& function, std::uint32_t nprocs, const SpawnOptions& options = {});

/// The same for function(index, args...).
template <class Function, class... Args>
void spawn(const Function& function, const std::tuple<Args...>& args, std::uint32_t nprocs,
           const SpawnOptions& options = {}) {
    spawn(
        [&](std::uint32_t index) { std::apply(function, std::tuple_cat(std::tuple(index), args)); },
        nprocs, options);
}

}  // namespace regroup
