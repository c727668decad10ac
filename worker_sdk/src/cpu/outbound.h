// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "worker_sdk/src/cpu/node_offer.h"
#include "worker_sdk/src/cpu/wire.h"
#include "worker_sdk/src/net/poll_set.h"
#include "worker_sdk/src/net/socket.h"

namespace regroup::cpu {

/// This rank's place in the group.
struct GroupPosition {
    std::uint32_t rank = 0;
    std::uint32_t world_size = 1;
    std::uint64_t round = 0;
    std::uint64_t group = 0;  ///< See Hello.

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

[[nodiscard]] Hello hello_to(const GroupPosition& position, const Peer& peer, std::uint32_t target,
                             ChannelKind kind);

/// Answers the hello of a peer, which may send from then on. If the connection has broken, it ends.
void welcome(net::Stream& stream, std::uint32_t rank);

/// A connection that this rank has dialled: connecting -> greeting -> ready, or ended at any point.
class Outbound {
   public:
    Outbound(const Peer& peer, const Hello& hello);

    void watch(net::PollSet& poll);
    /// Continues the handshake; afterwards only checks for the end of the connection.
    void progress();

    [[nodiscard]] bool ready() const noexcept { return state_ == State::ready && !ended(); }
    /// The reason why the connection is unusable, as the rest of a sentence about the peer; empty
    /// while it is usable.
    [[nodiscard]] const std::string& ending() const noexcept { return ending_; }
    [[nodiscard]] bool ended() const noexcept { return !ending_.empty(); }
    /// Requires `ready()`.
    [[nodiscard]] net::Stream& stream() noexcept { return stream_; }

   private:
    enum class State { connecting, greeting, ready };

    void greet();
    void read_welcome();

    Hello hello_;
    net::Stream stream_;
    State state_ = State::connecting;
    Partial<Welcome> welcome_;
    std::string ending_;
};

}  // namespace regroup::cpu
