// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "agent/core/agent_core.h"
#include "rendezvous/core/messages.h"

namespace regroup::agent {

/// The frames that tell the daemon that the agent was killed: a join and a leave. Without them the
/// daemon would see only a broken connection.
[[nodiscard]] std::string words_if_killed(const AgentConfig& own,
                                          const rendezvous::NodeReport& report);

/// Remembers the last report to the daemon. A draining node ends with a leave and no further
/// report, so the daemon would miss the steps since the last heartbeat.
class LastWords {
   public:
    /// Call before `message` is sent; `now` is the present report. Returns the report to send
    /// first, or nothing.
    [[nodiscard]] std::optional<rendezvous::NodeReport> before(const rendezvous::FromAgent& message,
                                                               const rendezvous::NodeReport& now);

   private:
    std::optional<rendezvous::NodeReport> said_;
};

}  // namespace regroup::agent
