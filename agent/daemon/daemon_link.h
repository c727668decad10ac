// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/core/agent_core.h"
#include "agent/watch/telemetry.h"
#include "rendezvous/client/control_client.h"

namespace regroup::agent {

struct DaemonLinkOptions {
    std::vector<rendezvous::Endpoint> endpoints;  ///< Of the daemons. See ControlClient.
    security::Credentials credentials;            ///< Of this node, towards the daemons.
    /// Called with the bytes that the warden must send to the daemon if this process is killed (see
    /// Warden::set_last_word), whenever they change. `name`: the daemon's host as the user wrote
    /// it. May be empty.
    std::function<void(const rendezvous::Endpoint& daemon, const std::string& name,
                       const std::string& bytes)>
        on_last_word;
};

/// An agent's connection to its daemon. Adds the telemetry of rank 0 to reports, and keeps what
/// must be said if the agent is killed.
class DaemonLink {
   public:
    using Handlers = rendezvous::ControlClient::Handlers;
    using LiveWorkers = std::function<std::vector<LiveWorker>()>;
    /// This node's report on the job's snapshots; none if another node reports, or there are no
    /// snapshots.
    using Snapshots = std::function<std::optional<rendezvous::SnapshotFacts>()>;

    /// The work of this node's workers in a window that has ended since the last call.
    using Work = std::function<std::optional<rendezvous::WorkWindow>()>;

    /// All references outlive this object.
    DaemonLink(boost::asio::io_context& io, const AgentConfig& config, DaemonLinkOptions options,
               LiveWorkers workers, Snapshots snapshots, Work work, Handlers handlers);

    void start() { client_.start(); }
    /// `now`: the present report of the node.
    void send(const rendezvous::FromAgent& message, const rendezvous::NodeReport& now);
    void drop() { client_.drop(); }
    void stop(std::function<void()> done);

    [[nodiscard]] const std::string& peer() const { return client_.peer(); }
    [[nodiscard]] const std::string& local_address() const { return client_.local_address(); }

   private:
    void report(const rendezvous::NodeReport& report);
    /// The report to send before `message`, or nothing. A draining node ends with a leave and no
    /// further report, so the daemon would miss the steps since the last heartbeat.
    [[nodiscard]] std::optional<rendezvous::NodeReport> last_report(
        const rendezvous::FromAgent& message, const rendezvous::NodeReport& now) const;

    const AgentConfig& config_;
    const DaemonLinkOptions options_;
    LiveWorkers workers_;
    Snapshots snapshots_;
    Work work_;
    std::optional<rendezvous::SnapshotFacts> said_snapshots_;  ///< On this connection.
    std::optional<rendezvous::NodeReport> said_;               ///< The last report.
    TelemetrySource telemetry_;
    rendezvous::ControlClient client_;
};

}  // namespace regroup::agent
