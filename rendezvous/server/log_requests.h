// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/clock.h"
#include "rendezvous/core/messages.h"
#include "rendezvous/server/session.h"

namespace regroup::rendezvous {

/// The operators that wait for a part of the output of a rank, which a node reads for them. Each
/// waits for one part at most, and not for longer than `kLimit`.
class LogRequests {
   public:
    static constexpr std::size_t kMax = 64;
    /// Of one token or user.
    static constexpr std::size_t kMaxOfOne = 16;
    static constexpr Duration kLimit = std::chrono::seconds(5);

    /// Answers in place of a part, while there is none. Trying again may help.
    static void note(Session& reader, const std::string& sentence);

    /// Why `reader` may not ask for a part now; empty: it may.
    [[nodiscard]] std::string objection(const Session& reader) const;
    /// `reader` waits for a part from the node `name` on the connection `node`. Returns the ticket
    /// for the node.
    std::uint64_t add(const std::shared_ptr<Session>& reader, const std::shared_ptr<Session>& node,
                      const std::string& name, Instant now);
    /// A node has answered.
    void take(const Session& node, const LogPart& part);
    /// Answers those whose time is over.
    void sweep(Instant now);
    /// The connection of a reader or a node has ended.
    void ended(const std::shared_ptr<Session>& session);

   private:
    struct Waiting {
        std::shared_ptr<Session> reader;
        std::shared_ptr<Session> node;
        std::string name;
        Instant until{};
    };

    std::map<std::uint64_t, Waiting> waiting_;  // By ticket: the oldest first.
    std::uint64_t last_ticket_ = 0;
};

}  // namespace regroup::rendezvous
