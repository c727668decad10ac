// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "worker_sdk/src/base/round_scope.h"
#include "worker_sdk/src/cpu/acceptor.h"
#include "worker_sdk/src/cpu/outbound.h"
#include "worker_sdk/src/cpu/wire.h"
#include "worker_sdk/src/group/group_failure.h"
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

/// The connections between this rank and the others, made when first needed, and the one place
/// where the helper thread waits. It moves no data of its own.
///
/// Not thread-safe: it belongs to one thread at a time.
class Mesh {
   public:
    /// How long whoever finds a peer gone or stuck waits for news from elsewhere that explain it.
    /// They travel at one hop per wake-up, so this is ample, and it only delays an error.
    static constexpr Duration kExplanationLimit = std::chrono::milliseconds(200);

    /// `peers[i]` is rank i; `listener` is the socket that `peers[position.rank]` describes.
    Mesh(const GroupPosition& position, std::vector<Peer> peers, net::Descriptor listener);

    [[nodiscard]] const GroupPosition& position() const noexcept { return position_; }
    [[nodiscard]] const Peer& peer(std::uint32_t rank) const { return peers_.at(rank); }
    [[nodiscard]] const std::vector<Peer>& peers() const noexcept { return peers_; }

    /// The connection on which this rank sends to `peer`; dialled by the first call.
    [[nodiscard]] Outbound& outbound(std::uint32_t peer, ChannelKind kind);
    /// The connection on which `peer` sends, or nullptr as long as it has not dialled.
    [[nodiscard]] net::Stream* inbound(std::uint32_t peer, ChannelKind kind);
    [[nodiscard]] std::map<std::uint32_t, net::Stream>& inbounds(ChannelKind kind) {
        return inbounds_[static_cast<std::size_t>(kind)];
    }

    /// To be called by who waits for `peer` to send on a connection that there may not be yet:
    /// makes sure that the peer's death would be noticed, and suspects it if that has happened.
    void await(std::uint32_t peer, ChannelKind kind, const Signature& operation);

    /// `peer` is needed for `operation` but gone. The turn that finds no better explanation within
    /// a moment throws GroupFailure: a rank that closes because of a third one usually says so, and
    /// the third one is the one to name.
    void suspect(std::uint32_t peer, const Signature& operation);
    /// The same for a failure that follows from another rank's.
    void suspect(const GroupFailure& failure);

    /// `peer` will send nothing more; `ending` is the rest of a sentence about it.
    void note_gone(std::uint32_t peer, const std::string& ending);
    /// The same for a peer that has said so itself.
    void note_left(std::uint32_t peer);
    [[nodiscard]] bool gone(std::uint32_t peer) const { return !endings_[peer].empty(); }

    /// Called once, with the rank in the world of the first peer to whom a connection breaks,
    /// though it has not left, and with the rest of a sentence about it: before any explanation is
    /// known.
    void on_break(RoundScope::BreakListener listener) { break_listener_ = std::move(listener); }
    void tell_break(std::uint32_t peer, const std::string& how);

    /// What the next turn also waits for.
    [[nodiscard]] net::PollSet& poll() noexcept { return poll_; }
    /// `participant` takes part in every turn from now on, and must outlive the last.
    void add(net::Participant& participant) { participants_.push_back(&participant); }

    /// Waits until anything happens, `until` at most, and lets everybody make progress. Throws
    /// GroupFailure, or Error `system`.
    void turn(Instant until);

   private:
    struct Suspicion {
        GroupFailure failure;
        Instant until;
    };

    const GroupPosition position_;
    const std::vector<Peer> peers_;
    Acceptor acceptor_;
    std::array<std::map<std::uint32_t, Outbound>, kChannelKinds> outbounds_;
    std::array<std::map<std::uint32_t, net::Stream>, kChannelKinds> inbounds_;
    std::vector<std::string> endings_;  // by rank; empty while it is there
    std::set<std::uint32_t> left_;
    std::optional<Suspicion> suspicion_;
    RoundScope::BreakListener break_listener_;  // Empty once it was called.
    std::vector<net::Participant*> participants_;
    net::PollSet poll_;
};

}  // namespace regroup::cpu
