// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/steady_timer.hpp>

#include "agent/process/linux_launcher.h"
#include "agent/process/readable_watch.h"

namespace regroup::agent {

/// The program of a fork server.
struct ForkServerOptions {
    std::string interpreter;           ///< A Python 3. Absolute.
    std::vector<std::string> options;  ///< Its argv up to the program: "python3", "-u".
    /// The rest of argv, for sys.path: "train.py", or "-m" and the module.
    std::vector<std::string> program;
    std::vector<std::string> modules;  ///< To import.
    /// The agent prepares it unasked: workers start without it until it is ready, and it leaves out
    /// modules that cannot be imported.
    bool in_background = false;
    std::vector<std::string> environment;  ///< The common part of the workers' environments.
};

/// A Python process that has imported modules, and forks workers. A worker so starts in
/// milliseconds, and shares the memory of the modules with the others.
///
/// A forked worker differs from one of LinuxLauncher::launch() in nothing that a program is meant
/// to see. It is a child of the agent, leads a new session, has the given descriptors, environment,
/// command line, CPUs and memory policy, and gets SIGKILL when the agent dies. The program runs in
/// a fresh `__main__`. Differences: the modules are imported already, when the variables of the
/// round were not set; and Python's hash seed is the same in all workers.
///
/// The server refuses to serve if an import fails, starts a thread or opens a GPU: a process forked
/// after that would hang or fail. It is started again if it dies, except while it imports.
///
/// Protocol. The server's standard input is a socket. For each worker the server gets one byte with
/// five descriptors: a file with the specification, the worker's socket, and its 0, 1 and 2. It
/// sends "ready", or "refused" with the module and the reason. The worker sends "hello" on its
/// socket, with its pid as credentials, and waits for a byte. From then on the pid is among
/// LinuxLauncher::children(). The worker sends "child" when it is a child of the agent, waits for
/// another byte, and begins.
class ForkServer {
   public:
    /// Gets the worker; or the reason why it cannot be forked, then start it by LinuxLauncher.
    using Started = std::function<void(Result<ChildProcess>)>;

    /// `say` gets lines for the user. All references outlive the server.
    ForkServer(boost::asio::io_context& io, LinuxLauncher& launcher, ForkServerOptions options,
               std::function<void(const std::string&)> say);
    ~ForkServer();
    ForkServer(const ForkServer&) = delete;
    ForkServer& operator=(const ForkServer&) = delete;

    /// Starts the server process, whose imports take seconds. Call once.
    void start();

    /// False once the server has refused or was stopped, and, in the background, until it is ready.
    /// Then workers must be started without it.
    [[nodiscard]] bool serves() const noexcept {
        return state_ == State::ready || (state_ == State::importing && !options_.in_background);
    }

    /// Forks a worker, once the server has imported its modules. `id` is the worker's own.
    /// `program_begin` is the index of the program in `spec.arguments`, as in ForkServerOptions.
    /// Calls `started` later from the event loop, unless the launch is cancelled first. Call only
    /// if serves(). `spec` and its descriptors must outlive the launch.
    void launch(std::uint64_t id, const ProcessSpec& spec, std::size_t program_begin,
                Started started);

    /// No worker comes from this launch. No effect if it is over.
    void cancel(std::uint64_t id);

    /// Ends the server process. Pending launches are cancelled.
    void stop();

   private:
    enum class State : std::uint8_t { importing, ready, off };
    struct Launch;

    void start_process();
    void hear();
    void ready(std::uint64_t import_ms, std::uint64_t memory_kib);
    void ended(ExitStatus status);
    void give_up(const std::string& reason);
    void fail_all(const Failure& why, bool stay_unseen);
    void stop_process();
    void request(std::uint64_t id, Launch& launch);
    void limit(std::uint64_t id, Launch& launch);
    void hear_worker(std::uint64_t id);
    void finish(std::uint64_t id, Result<ChildProcess> result);
    void release(Launch& launch);

    boost::asio::io_context& io_;
    LinuxLauncher& launcher_;
    const ForkServerOptions options_;
    std::function<void(const std::string&)> say_;
    State state_ = State::off;
    std::optional<ChildProcess> process_;
    std::optional<ReadableWatch> control_;
    std::map<std::uint64_t, Launch> launches_;  ///< Pending ones.
    int deaths_ = 0;
    boost::asio::steady_timer timer_;
};

}  // namespace regroup::agent
