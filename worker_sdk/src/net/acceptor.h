// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <list>
#include <set>
#include <utility>
#include <vector>

#include "worker_sdk/src/net/handshake.h"
#include "worker_sdk/src/net/poll_set.h"
#include "worker_sdk/src/net/socket.h"

namespace regroup::net {

/// The callers that an Acceptor expects: the ranks of its group, once for each kind of traffic.
struct Guests {
    Hello hello{};  ///< A peer's; its `source` and `kind` do not matter.
    std::uint32_t world_size = 1;
    std::uint32_t kinds = 1;
    Protection protection{};
};

/// Accepts connections and admits those of the guests. Greets all callers at the same time, so that
/// none waits for another. Closes all other connections; if too many are silent, the oldest first.
class Acceptor {
   public:
    /// The most callers that are greeted at the same time.
    static constexpr std::size_t kVisitorsMax = 128;

    struct Accepted {
        std::uint32_t source = 0;
        std::uint32_t kind = 0;
        Stream stream;
        Welcome answer{};
        HandshakeResult session{};

        /// Lets the peer send. To be called once the stream is where its owner looks for it. If the
        /// connection has broken, the stream ends.
        void welcome() { welcome(stream); }
        /// The same for a stream that was moved out of this object.
        void welcome(Stream& moved) const;
    };

    Acceptor(UniqueFd listener, const Guests& guests);

    void watch(PollSet& poll);
    /// The connections admitted since the last call. The peers wait for `welcome`.
    [[nodiscard]] std::vector<Accepted> progress(Instant now);
    [[nodiscard]] Instant next_deadline() const;

   private:
    struct Visitor {
        Stream stream;
        Instant until;
        Partial<Introduction> introduction{};
    };

    [[nodiscard]] bool expects(const Hello& hello) const;
    void accept_some(Instant now);
    void send_away_one();

    Pollable listener_;
    ForkGuard guard_;
    const Guests guests_;
    std::list<Visitor> visitors_;  // Connections without an Introduction yet; oldest first.
    std::set<std::pair<std::uint32_t, std::uint32_t>> admitted_;  // source, kind
};

}  // namespace regroup::net
