// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "agent/core/agent_core.h"
#include "rendezvous/core/messages.h"

namespace regroup::agent {

/// The frames that tell the daemon that the agent was killed. They are as from an agent that comes
/// back and leaves, so that the daemon need not guess from a connection that broke.
[[nodiscard]] std::string words_if_killed(const AgentConfig& own,
                                          const rendezvous::NodeReport& report);

/// Remembers what the daemon was told last. A node whose workers save their state and leave says
/// goodbye without another report, and steps that were committed since the last heartbeat would
/// never be known.
class LastWords {
   public:
    /// `message` is about to be sent, and `now` is true of the node. Returns the heartbeat that has
    /// to go ahead of it, or nothing.
    [[nodiscard]] std::optional<rendezvous::NodeReport> before(const rendezvous::FromAgent& message,
                                                               const rendezvous::NodeReport& now);

   private:
    std::optional<rendezvous::NodeReport> said_;
};

}  // namespace regroup::agent
