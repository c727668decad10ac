// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/core/agent_core.h"
#include "agent/process/fork_server.h"
#include "agent/process/output_relay.h"
#include "agent/workers/start_watch.h"
#include "agent/workers/worker_command.h"
#include "rendezvous/client/endpoint.h"

namespace regroup::agent {

/// Makes processes of the workers of one node: each with its environment, its placement, its
/// folders and its output, by exec or by a fork server.
class WorkerStarter {
   public:
    /// Gets the process of a worker, or why it could not be started.
    using OnStarted = std::function<void(std::uint64_t key, Result<ChildProcess> child)>;

    /// All references outlive this object.
    WorkerStarter(boost::asio::io_context& io, const Clock& clock, LinuxLauncher& launcher,
                  OutputRelay& output, const AgentConfig& config, const WorkerGroupOptions& options,
                  OnStarted on_started);

    /// Starts the fork server, if the command has one. Workers then wait for its imports.
    void start_fork_server();
    /// Prepares a fork server in the background that imports these modules (names with commas
    /// between), if the command may have one and has none, and the node has the memory.
    void prepare_fork_server(const std::string& modules);
    /// Ends it. Workers that wait for it are not started.
    void stop_fork_server();

    /// Where workers reach the store of the round that begins now; nothing: at the master.
    void use_relay(std::optional<rendezvous::Endpoint> relay) { relay_ = std::move(relay); }
    /// Chooses the network interface of the next workers: the one to the master. `own_address`: see
    /// WorkerGroup::launch().
    void choose_interface(const Assignment& assignment, const std::string& own_address);

    [[nodiscard]] WorkerIdentity identity_of(const Assignment& assignment,
                                             std::uint32_t local_rank) const;
    [[nodiscard]] WorkerOutput output_of(const WorkerIdentity& worker) const;

    /// Starts a worker. `key` is its own. on_started is called once: before this returns, or from
    /// the event loop unless the start is cancelled first.
    void start(std::uint64_t key, const WorkerIdentity& worker, const WorkerOutput& plan);
    /// A worker that waits for the fork server is not started.
    void cancel(std::uint64_t key);

    /// Says after a slow restart that --preload makes Python programs start sooner.
    [[nodiscard]] StartWatch& starts() noexcept { return starts_; }

    /// Opens the files of all workers a little later: the disk may be slow, and the workers wait
    /// for their store.
    void open_files_soon();
    /// Opens them now, if that is still to be done.
    void open_files_now();

   private:
    [[nodiscard]] bool shows_sign() const;
    [[nodiscard]] ProcessSpec spec_of(const WorkerIdentity& worker, const OutputRelay::Pipes& pipes,
                                      bool reads_stdin) const;
    void make_folder(const std::filesystem::path& folder);
    void open_fork_server(std::vector<std::string> modules, bool in_background);
    void fork(std::uint64_t key, ProcessSpec spec, OutputRelay::Pipes pipes);

    boost::asio::io_context& io_;
    LinuxLauncher& launcher_;
    OutputRelay& output_;
    const AgentConfig& config_;
    const WorkerGroupOptions& options_;
    OnStarted on_started_;
    const UniqueFd no_input_;  ///< /dev/null, for workers that do not read stdin.
    std::optional<ForkServer> fork_server_;
    StartWatch starts_;
    boost::asio::steady_timer files_timer_;
    bool files_wanted_ = false;
    std::filesystem::path made_folder_;
    std::optional<rendezvous::Endpoint> relay_;
    std::string network_interface_;
};

}  // namespace regroup::agent
