// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <list>
#include <set>
#include <utility>
#include <vector>

#include "worker_sdk/src/cpu/wire.h"
#include "worker_sdk/src/net/poll_set.h"
#include "worker_sdk/src/net/socket.h"

namespace regroup::cpu {

/// Accepts connections and admits those with a valid Hello: the ranks of this group, once for each
/// kind. Closes all other connections.
class Acceptor {
   public:
    struct Accepted {
        std::uint32_t source;
        ChannelKind kind;
        net::Stream stream;
    };

    /// `expected` is the Hello of a peer; its `source` and `kind` do not matter.
    Acceptor(net::Descriptor listener, const Hello& expected, std::uint32_t world_size);

    void watch(net::PollSet& poll);
    /// The connections admitted since the last call. The peers wait for `welcome`.
    [[nodiscard]] std::vector<Accepted> progress(Instant now);
    [[nodiscard]] Instant next_deadline() const;

   private:
    struct Visitor {
        net::Stream stream;
        Instant until;
        Partial<Hello> hello;
    };

    [[nodiscard]] bool admits(const Hello& hello) const;
    void accept_all(Instant now);

    net::Pollable listener_;
    net::ForkGuard guard_;
    Hello expected_;
    std::uint32_t world_size_;
    std::list<Visitor> visitors_;  // Connections without a Hello yet; oldest first.
    std::set<std::pair<std::uint32_t, ChannelKind>> admitted_;
};

}  // namespace regroup::cpu
