// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "worker_sdk/src/cpu/node_offer.h"
#include "worker_sdk/src/cpu/wire.h"
#include "worker_sdk/src/net/handshake.h"
#include "worker_sdk/src/net/outbound.h"
#include "worker_sdk/src/net/socket.h"

namespace regroup::cpu {

using net::Outbound;

/// This rank's place in the group.
struct GroupPosition {
    std::uint32_t rank = 0;
    std::uint32_t world_size = 1;
    std::uint64_t round = 0;
    std::uint64_t group = 0;  ///< See net::Hello.
    net::Protection protection{};

    [[nodiscard]] std::uint32_t next() const noexcept { return (rank + 1) % world_size; }
    [[nodiscard]] std::uint32_t previous() const noexcept {
        return (rank + world_size - 1) % world_size;
    }
};

/// Another rank, as it has described itself in the store.
struct Peer {
    net::SocketAddress address;
    std::uint64_t token = 0;
    std::uint64_t node = 0;  ///< node_identity; 0: shares no memory.
    std::optional<NodeOffer> offer{};
    std::uint32_t world_rank = 0;  ///< In the group of all; differs in a sub-group.
    std::string name{};            ///< For people: "rank 3 (10.0.0.4:4711)".
};

/// The Hello of the rank at `position` to rank `target`, which is `peer`.
[[nodiscard]] net::Hello hello_to(const GroupPosition& position, const Peer& peer,
                                  std::uint32_t target, ChannelKind kind);

}  // namespace regroup::cpu
