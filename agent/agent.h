// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/core/agent_core.h"
#include "agent/process/output_relay.h"
#include "agent/watch/progress_watch.h"
#include "agent/worker_group.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/client/control_client.h"
#include "rendezvous/store_server/store_server.h"

namespace regroup::agent {

struct AgentOptions {
    AgentConfig core;
    std::vector<rendezvous::Endpoint> endpoints;  ///< Of the daemon; see ControlClient.
    WorkerCommand command;
    OutputOptions output;
    std::string host;       ///< Its short name, for prefixes.
    std::string full_host;  ///< For failure reports.
    /// The store is served to connections that the daemon in this process passes on, on the
    /// daemon's own port, in every round. Without it, each round has a port of its own.
    std::uint16_t fixed_store_port = 0;
    store::Dialect store_dialect = store::Dialect::v1_13;  ///< See StoreServer::Options.
    bool announces = true;  ///< Says which ranks run here, each round.
    HangLimits hangs{};
    std::string search_path;  ///< The value of PATH: for programs that show the stacks of a hang.
    /// Gets what should be sent to the daemon's address if this process is killed (see
    /// Warden::set_last_word), whenever that changes; may be empty.
    std::function<void(const rendezvous::Endpoint& daemon, const std::string& bytes)> on_last_word;
    /// Asked each time that no daemon answers, until workers have been started here: the node's
    /// configuration if this process serves the rendezvous from now on, or nothing. May be empty.
    std::function<std::optional<AgentConfig>()> host_rendezvous;
    /// Gets what happens to rounds and workers here, as it happens; may be empty.
    EventSink on_event;
};

/// One node of a job: AgentCore with hands. Launches, signals and waits for workers, keeps their
/// output, serves the round's store when this node has group rank 0, and speaks with the daemon. An
/// `if` about rounds in this class is in the wrong file.
///
/// Everything runs on the io_context's one thread, which must be the thread that outlives the
/// workers: they are killed when it ends. All references outlive the Agent.
class Agent {
   public:
    Agent(boost::asio::io_context& io, const Clock& clock, OutputRelay& output,
          AgentOptions options);
    ~Agent();
    Agent(const Agent&) = delete;
    Agent& operator=(const Agent&) = delete;

    /// Begins. `on_done` is called once, when no worker is left and the daemon has been told.
    /// Errors: system, when no socket for the store can be had.
    Result<void> start(std::function<void(const Quit&)> on_done);

    /// As a signal to the process: leave, after the next step boundary if that can be; the second
    /// time, at once.
    void request_quit(int signal);
    /// Whether a request to quit would first let the workers come to a step boundary.
    [[nodiscard]] bool would_drain() const;
    /// Whether there are workers here that have had a place in a round.
    [[nodiscard]] bool holds_state() const;
    /// Passes a signal on to all workers but those with the SDK's loop that it would only end.
    void forward(int signal);
    /// Whether that is all of them.
    [[nodiscard]] bool would_only_end_workers(int signal) const;

    /// The daemon has spoken on the present connection.
    [[nodiscard]] bool hears_daemon() const;
    /// The daemon has said that this node waits as a standby.
    [[nodiscard]] bool was_standby() const;
    /// True once workers of some round have been launched here.
    [[nodiscard]] bool has_run() const;
    /// Of the time since then, as far as this node was told.
    [[nodiscard]] rendezvous::Goodput goodput() const;

    /// For the daemon in this process: connections of store clients.
    store::StoreServer& store();

   private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace regroup::agent
