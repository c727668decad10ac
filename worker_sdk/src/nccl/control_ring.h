// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/base/clock.h"
#include "worker_sdk/src/group/standing.h"
#include "worker_sdk/src/net/acceptor.h"
#include "worker_sdk/src/net/handshake.h"
#include "worker_sdk/src/net/notice_line.h"
#include "worker_sdk/src/net/outbound.h"
#include "worker_sdk/src/net/poll_set.h"
#include "worker_sdk/src/net/socket.h"

namespace regroup::nccl {

using net::Notice;  // Which the ring carries to every rank.

/// Detects ranks that die. NCCL does not detect them inside a node, and between nodes only after
/// tens of seconds. Every rank keeps one TCP connection to the next and one to the previous rank. A
/// process that ends in any way closes them, so its neighbours know at once. The neighbours send a
/// notice around the ring, and each rank forwards it to its other neighbour.
///
/// A rank needs two connections, whatever the world size. The ring detects the end of a process but
/// not a power loss of a machine: for those there are the group's deadline and the agent's
/// heartbeat. Used by one thread.
class ControlRing {
   public:
    /// The listening socket of this rank, before any neighbour is connected.
    struct Door {
        UniqueFd listener;
        std::uint64_t token = 0;
        /// For the store: address and token.
        [[nodiscard]] std::string text() const;
    };
    /// Opens a door on the local address from which this machine reaches `host`. Throws Error
    /// `system`.
    [[nodiscard]] static Door open_door(const net::SocketAddress& address);

    /// This rank's place in the group; the ranks differ only in `rank`.
    struct Member {
        std::uint32_t rank = 0;
        std::uint32_t world_size = 1;
        std::uint64_t round = 0;
        std::uint64_t group = 0;  ///< See net::Hello.
        net::Protection protection{};
    };

    /// Connects to the next rank, whose door's text is `next`, and lets the previous one in;
    /// meanwhile calls `look_around` every second, which may throw. Throws Error
    /// `deadline_exceeded` or `disconnected` naming the neighbour.
    ControlRing(Door door, const Member& place, const std::string& next, Instant deadline,
                const std::function<void()>& look_around);

    /// Wants to know when a neighbour that is still connected has written, or reads again.
    void watch(net::PollSet& poll);
    /// Reads and forwards the notices that have arrived. Returns the new ones.
    [[nodiscard]] std::vector<Notice> progress();
    /// Tells all ranks.
    void announce(const Notice& notice);

   private:
    struct Link {
        std::uint32_t rank = 0;
        std::string name;  // "rank 3 (10.0.0.4:4711)"
        std::optional<net::Stream> stream;
        net::NoticeLine notices;
        bool left = false;
    };

    void meet_neighbours(net::Outbound& next, net::Acceptor& door, Instant deadline,
                         const std::function<void()>& look_around);
    void read(Link& link, std::vector<Notice>& news);
    void take(Link& link, Notice notice, std::vector<Notice>& news);
    [[nodiscard]] bool is_news(const Notice& notice);
    void pass_on(const Notice& notice, const Link* except);

    const std::uint32_t rank_;
    const std::uint32_t world_size_;
    std::array<Link, 2> links_;                                // the next rank, the previous rank
    std::set<std::pair<std::uint32_t, std::uint64_t>> heard_;  // origin, scope and kind
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> versions_;  // origin, scope
};

}  // namespace regroup::nccl
