// SPDX-License-Identifier: Apache-2.0
// Several processes of one function, without a launcher.
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
    /// Makes the processes one world on this machine: each finds RANK, LOCAL_RANK, WORLD_SIZE,
    /// LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT in its environment, and a store behind them,
    /// which the parent serves from a thread of its own until the last process is gone. So
    /// Context::from_environment() and ProcessGroup::create() work in the function as they do under
    /// a launcher. False leaves the environment as it is.
    bool set_environment = true;
    /// Between SIGTERM and SIGKILL for processes that are to end because another one failed.
    std::chrono::nanoseconds grace = std::chrono::seconds(10);
    /// How long a process that merely lost a peer (see SpawnedProcesses::join) may be the only one
    /// that failed before the others are told to end: the peer may be about to say why it left.
    std::chrono::nanoseconds cause_wait = std::chrono::seconds(2);
};

/// A spawned process failed. What it threw travels with it: `what()` ends with the sentence of the
/// exception, and `code()` is that of an Error, else `closed`.
class SpawnError : public Error {
   public:
    struct Process {
        std::uint32_t index = 0;
        int pid = 0;
        int exit_code = 0;  ///< Meaningless if `signal` is not 0; -1 if it cannot be known.
        int signal = 0;     ///< By which it ended, or 0.
    };

    SpawnError(Errc code, const std::string& detail, const Process& process)
        : Error(code, detail), process_(process) {}

    [[nodiscard]] const Process& process() const noexcept { return process_; }

   private:
    Process process_;
};

/// What each process runs; the argument is its index, from 0 to nprocs - 1.
using SpawnFunction = std::function<void(std::uint32_t index)>;

/// Processes that were started together and end together: when one fails, which join() notices, the
/// others get SIGTERM, and SIGKILL after the grace; who has reported its end already gets no
/// SIGTERM. None outlives this object, nor the thread that started them, however that ends. Used by
/// that thread alone; may be moved.
class SpawnedProcesses {
   public:
    struct State;

    explicit SpawnedProcesses(std::unique_ptr<State> state) noexcept;
    SpawnedProcesses(SpawnedProcesses&& other) noexcept;
    SpawnedProcesses& operator=(SpawnedProcesses&& other) noexcept;
    /// Ends those that still run, as above, and waits for them.
    ~SpawnedProcesses();

    /// By index.
    [[nodiscard]] std::vector<int> pids() const;

    /// Waits until all have ended, and throws SpawnError for the one that failed first. Failing is
    /// to throw, to exit with another code than 0, or to be ended by a signal. A process that
    /// merely lost a peer (Errc `disconnected`, `fenced` or `deadline_exceeded`) is not blamed if
    /// one failed by itself, also within SpawnOptions::cause_wait after it.
    void join();

    /// The same within `limit`: false if some still run then.
    [[nodiscard]] bool join_for(std::chrono::nanoseconds limit);

   private:
    std::unique_ptr<State> state_;
};

/// Starts `nprocs` processes of `function`. Each is a fork of this one, so that it has all that the
/// caller has in memory; when the function returns it ends by _exit, without running destructors of
/// static objects. A std::exception that leaves the function is carried over and ends the process
/// with code 1; any other exception ends it by SIGABRT.
///
/// Throws Error: `invalid_argument` if this process has more than one thread, since a fork copies
/// only the calling one and leaves the locks of the others locked for ever (so spawn before forming
/// a group, and before libraries start threads of their own), or if `nprocs` is 0; `system` if
/// there can be no more processes.
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
