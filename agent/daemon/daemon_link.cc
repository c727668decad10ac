// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon/daemon_link.h"

#include <algorithm>
#include <utility>

#include "rendezvous/protocol/codec.h"
#include "rendezvous/protocol/framing.h"

namespace regroup::agent {

using rendezvous::NodeReport;

namespace {

constexpr Duration kGoodbyeLimit = std::chrono::seconds(1);

/// The frames that tell the daemon that the agent was killed: a join and a leave. Without them the
/// daemon would see only a broken connection.
std::string words_if_killed(const AgentConfig& own, const NodeReport& report) {
    using protocol::encode;
    using protocol::make_frame;
    const rendezvous::FromAgent join =
        rendezvous::Join{own.job, own.node, own.policy, own.offer, report};
    const rendezvous::FromAgent leave = rendezvous::Leave{"its agent was killed", true};
    return make_frame(encode(join)) + make_frame(encode(leave));
}

}  // namespace

DaemonLink::DaemonLink(boost::asio::io_context& io, const AgentConfig& config,
                       DaemonLinkOptions options, LiveWorkers workers, Snapshots snapshots,
                       Work work, Handlers handlers)
    : config_(config),
      options_(std::move(options)),
      workers_(std::move(workers)),
      snapshots_(std::move(snapshots)),
      work_(std::move(work)),
      client_(
          io, options_.endpoints,
          [&] {
              handlers.on_up = [this, on_up = std::move(handlers.on_up)] {
                  telemetry_.forget_sent();
                  said_snapshots_.reset();
                  on_up();
              };
              return std::move(handlers);
          }(),
          config.policy.heartbeat_timeout,
          security::Identity{options_.credentials, {security::Role::node, config.job}}) {}

void DaemonLink::send(const rendezvous::FromAgent& message, const NodeReport& now) {
    if (const auto last = last_report(message, now)) {
        report(*last);
    }
    if (const auto* own = std::get_if<rendezvous::Report>(&message)) {
        report(own->report);
    } else {
        if (const auto* join = std::get_if<rendezvous::Join>(&message)) {
            said_ = join->report;
        }
        client_.send(message);
    }
    const auto daemon = rendezvous::Endpoint::parse(peer());
    if (options_.on_last_word && daemon) {
        options_.on_last_word(*daemon, client_.daemon_host(), words_if_killed(config_, now));
    }
}

std::optional<NodeReport> DaemonLink::last_report(const rendezvous::FromAgent& message,
                                                  const NodeReport& now) const {
    const bool trained = said_ && said_->elastic && said_->state == rendezvous::NodeState::running;
    if (!std::holds_alternative<rendezvous::Leave>(message) || !trained ||
        said_->round != now.round || now.step <= said_->held_step) {
        return std::nullopt;
    }
    // The last report with the step that the workers have committed since.
    NodeReport last = *said_;
    last.step = std::max(last.step, now.step);
    last.held_step = now.step;
    return last;
}

void DaemonLink::report(const NodeReport& report) {
    said_ = report;
    rendezvous::Report message{report, telemetry_.news(report.round, workers_())};
    if (const auto facts = snapshots_(); facts != said_snapshots_) {
        message.snapshots = facts;
        said_snapshots_ = facts;
    }
    message.work = work_();
    client_.send(message);
}

void DaemonLink::stop(std::function<void()> done) {
    client_.stop(kGoodbyeLimit, std::move(done));
}

}  // namespace regroup::agent
