// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon/daemon_link.h"

#include <utility>

namespace regroup::agent {

namespace {

constexpr Duration kGoodbyeLimit = std::chrono::seconds(1);

}  // namespace

DaemonLink::DaemonLink(boost::asio::io_context& io, const AgentConfig& config,
                       DaemonLinkOptions options, LiveWorkers workers, Handlers handlers)
    : config_(config),
      options_(std::move(options)),
      workers_(std::move(workers)),
      client_(
          io, options_.endpoints,
          [&] {
              handlers.on_up = [this, on_up = std::move(handlers.on_up)] {
                  telemetry_.forget_sent();
                  on_up();
              };
              return std::move(handlers);
          }(),
          config.policy.heartbeat_timeout,
          security::Identity{options_.credentials, {security::Role::node, config.job}}) {}

void DaemonLink::send(const rendezvous::FromAgent& message, const rendezvous::NodeReport& now) {
    if (const auto last = last_words_.before(message, now)) {
        report(*last);
    }
    if (const auto* own = std::get_if<rendezvous::Report>(&message)) {
        report(own->report);
    } else {
        client_.send(message);
    }
    const auto daemon = rendezvous::Endpoint::parse(peer());
    if (options_.on_last_word && daemon) {
        options_.on_last_word(*daemon, client_.daemon_host(), words_if_killed(config_, now));
    }
}

void DaemonLink::report(const rendezvous::NodeReport& report) {
    client_.send(rendezvous::Report{report, telemetry_.news(report.round, workers_())});
}

void DaemonLink::stop(std::function<void()> done) {
    client_.stop(kGoodbyeLimit, std::move(done));
}

}  // namespace regroup::agent
