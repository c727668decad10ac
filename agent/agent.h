// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "agent/core/agent_core.h"
#include "agent/daemon/daemon_link.h"
#include "agent/health/node_check.h"
#include "agent/process/output_relay.h"
#include "agent/snapshot/snapshot_keeper.h"
#include "agent/store/round_store.h"
#include "agent/watch/node_watch.h"
#include "agent/workers/worker_group.h"
#include "rendezvous/base/clock.h"

namespace regroup::agent {

struct AgentOptions {
    AgentConfig core;
    WorkerGroupOptions group;
    RoundStoreOptions store;
    SnapshotOptions snapshots{};
    NodeWatchOptions watch;
    health::CheckOptions health{};  ///< Before the node joins, and after a failure of a worker.
    DaemonLinkOptions daemon;
    bool announces = true;  ///< Print the ranks of this node in each round.
    /// Called each time that no daemon answers and this node may run the daemon. Returns the
    /// new configuration of the node if this process has started a daemon, else nothing. May be
    /// empty.
    std::function<std::optional<AgentConfig>()> host_rendezvous;
    /// A daemon that this process starts would read the journal of the one before it.
    bool daemon_remembers = false;
};

/// One node of a job. Carries out the effects of AgentCore: launches, signals and waits for
/// workers, keeps their output, serves the store of the round when this node has group rank 0, and
/// talks to the daemon. Decisions about rounds belong in AgentCore, not here.
///
/// Everything runs on the one thread of the io_context. The thread must outlive the workers: the
/// kernel kills them when it ends. All references outlive the Agent.
class Agent {
   public:
    Agent(boost::asio::io_context& io, const Clock& clock, OutputRelay& output,
          AgentOptions options);
    ~Agent();
    Agent(const Agent&) = delete;
    Agent& operator=(const Agent&) = delete;

    /// Starts the agent. `on_done` is called once, when no worker is left and the daemon has been
    /// told. Errors: system, when no socket for the store can be opened.
    Result<void> start(std::function<void(const Quit&)> on_done);

    /// Acts on a signal to the process: the node leaves, at the next step boundary if possible. The
    /// second call ends the workers at once.
    void request_quit(int signal);
    /// True if request_quit() would begin a drain now.
    [[nodiscard]] bool would_drain() const;
    /// True if a live worker has taken part in a round.
    [[nodiscard]] bool holds_state() const;
    /// Passes a signal on to all workers, except those in an ElasticLoop that do not handle it.
    void forward(int signal);
    /// True if all workers are in an ElasticLoop and do not handle the signal.
    [[nodiscard]] bool would_only_end_workers(int signal) const;

    /// True if the daemon has sent a message on the present connection.
    [[nodiscard]] bool hears_daemon() const;
    /// True if the daemon has said that this node waits as a standby.
    [[nodiscard]] bool was_standby() const;
    /// The part that this node has in the job now.
    [[nodiscard]] AgentCore::Part part() const;
    /// True once workers of some round have been launched here.
    [[nodiscard]] bool has_run() const;
    /// The recoveries since then that this node knows of.
    [[nodiscard]] rendezvous::Goodput goodput() const;

    /// Serves a store client that connected to the daemon in this process, and its first bytes.
    void adopt_store_client(boost::asio::ip::tcp::socket socket, std::string_view first_bytes);

   private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace regroup::agent
