// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "worker_sdk/src/base/round_scope.h"
#include "worker_sdk/src/cpu/collective_links.h"
#include "worker_sdk/src/cpu/peer.h"
#include "worker_sdk/src/cpu/wire.h"
#include "worker_sdk/src/group/group_failure.h"
#include "worker_sdk/src/net/acceptor.h"
#include "worker_sdk/src/net/poll_set.h"
#include "worker_sdk/src/net/socket.h"

namespace regroup::cpu {

/// The connections between this rank and the others, dialled when first needed. The helper thread
/// waits only here. The mesh itself moves no data. Once the group is formed, the connections of
/// collectives belong to CollectiveLinks.
///
/// Not thread-safe: it belongs to one thread at a time.
class Mesh {
   public:
    /// How long a rank that finds a peer gone or stuck waits for a notice that explains it. A
    /// notice travels one hop per wake-up, so this limit is ample, and it only delays an error.
    static constexpr Duration kExplanationLimit = std::chrono::milliseconds(200);

    /// `peers[i]` is rank i; `listener` is the socket that `peers[position.rank]` describes.
    Mesh(const GroupPosition& position, std::vector<Peer> peers, UniqueFd listener);

    [[nodiscard]] const GroupPosition& position() const noexcept { return position_; }
    [[nodiscard]] const Peer& peer(std::uint32_t rank) const { return peers_->at(rank); }
    [[nodiscard]] const std::shared_ptr<const std::vector<Peer>>& peers() const noexcept {
        return peers_;
    }

    /// The connection on which this rank sends to `peer`; dialled by the first call.
    [[nodiscard]] Outbound& outbound(std::uint32_t peer, ChannelKind kind);
    /// The connection on which `peer` sends, or nullptr until the peer has dialled.
    [[nodiscard]] net::Stream* inbound(std::uint32_t peer, ChannelKind kind);
    [[nodiscard]] std::map<std::uint32_t, net::Stream>& inbounds(ChannelKind kind) {
        return inbounds_[static_cast<std::size_t>(kind)];
    }

    /// Called while this rank waits for `peer` to send on a connection that may not exist yet.
    /// Ensures that this rank would notice the death of `peer`, and suspects `peer` if it is gone.
    void await(std::uint32_t peer, ChannelKind kind, const Signature& operation);

    /// `peer` is needed for `operation` but gone. A turn throws GroupFailure if no better
    /// explanation arrives within kExplanationLimit. A rank that closes because of a third rank
    /// usually says so, and the error should name the third rank.
    void suspect(std::uint32_t peer, const Signature& operation);
    /// The same for a failure that follows from another rank's.
    void suspect(const GroupFailure& failure);

    /// Parts with the connections of collectives, those that are still to be accepted included. The
    /// links must outlive the mesh. Called once.
    [[nodiscard]] std::unique_ptr<CollectiveLinks> part_links();

    /// `peer` will send nothing more; `ending` is the rest of a sentence about it.
    void note_gone(std::uint32_t peer, const std::string& ending);
    /// The same for a peer that has announced that it leaves.
    void note_left(std::uint32_t peer);
    [[nodiscard]] bool gone(std::uint32_t peer) const { return !endings_[peer].empty(); }

    /// `listener` is called once, when the first connection to a peer that has not left breaks,
    /// before any explanation is known. It gets the peer's rank in the world and the rest of a
    /// sentence about it.
    void on_break(RoundScope::BreakListener listener) { break_listener_ = std::move(listener); }
    void tell_break(std::uint32_t peer, const std::string& how);

    /// Further descriptors that the next turn waits for.
    [[nodiscard]] net::PollSet& poll() noexcept { return poll_; }
    /// `participant` takes part in every turn from now on, and must outlive the last.
    void add(net::Participant& participant) { participants_.push_back(&participant); }

    /// Waits for an event, `until` at most, and lets all participants make progress. Throws
    /// GroupFailure, or Error `system`.
    void turn(Instant until);

   private:
    struct Suspicion {
        GroupFailure failure;
        Instant until;
    };

    const GroupPosition position_;
    const std::shared_ptr<const std::vector<Peer>> peers_;
    net::Acceptor acceptor_;
    std::array<std::map<std::uint32_t, Outbound>, kChannelKinds> outbounds_;
    std::array<std::map<std::uint32_t, net::Stream>, kChannelKinds> inbounds_;
    std::vector<std::string> endings_;  // by rank; empty while it is there
    std::set<std::uint32_t> left_;
    std::optional<Suspicion> suspicion_;
    CollectiveLinks* links_ = nullptr;
    RoundScope::BreakListener break_listener_;  // Empty once it was called.
    std::vector<net::Participant*> participants_;
    net::PollSet poll_;
};

}  // namespace regroup::cpu
