// SPDX-License-Identifier: Apache-2.0
//
// The messages about snapshots between a worker and its agent, over a local socket of their own
// (SOCK_SEQPACKET, so that a packet is a message), which the agent sends over the worker's link.
// The worker asks, and each ask gets one answer, in order. Long contents come as descriptors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "rendezvous/base/result.h"
#include "rendezvous/snapshot/holdings.h"
#include "rendezvous/snapshot/version.h"

namespace regroup::snapshot {

struct Ask {
    enum class Kind : std::uint8_t {
        /// The room for part `id`, with slots of at least `bytes`. Answer: its descriptor. The
        /// agent gives a room that is there already, with its contents, if it is large enough. Else
        /// it gives an empty one, and keeps the versions in the other.
        room,
        /// This node's parts of the state `id.name`. Answer: an Announcement, in a file of `bytes`.
        holdings,
        /// A range of the image of `version` of part `id`, from `place` on the node at `endpoint`
        /// (empty: on this node): up to `bytes` from `begin` on; 0: all. Answer: a file that has
        /// the range as `bytes` from `offset` on.
        image,
        /// The whole image that the agent has fetched for the same question is undamaged, and the
        /// part is the worker's: the agent keeps it until a later version is kept.
        adopt,
        /// `version` of part `id` is published in its room. The agent may copy it.
        saved,
        /// Every rank has saved `version` of the state `id.name`, whose parts have the number in
        /// `id`. At the start of a round one worker of each node tells all versions that can be
        /// loaded, the latest last. The agent may write it to the folder.
        whole,
        /// The version is whole, and each part of it copied, where copies are made. The agent may
        /// give up earlier ones.
        kept,
        /// In this round, the agent at `endpoint` holds the copies of this node's parts; empty:
        /// none does.
        copies_to,
    };
    Kind kind = Kind::room;
    PartId id{};
    Version version{};
    Holding::Place place = Holding::Place::room;
    std::string endpoint{};
    std::uint64_t begin = 0;
    std::uint64_t bytes = 0;
    /// For a room, as in RoomWanted.
    std::uint64_t spare = 0;
    bool replicated = false;
    bool fresh = false;
    /// For whole: the folder is to have this version. All ranks say the same.
    bool write = false;
    /// For image: there is no other node to ask, so that this one is asked for a while if it cannot
    /// be reached.
    bool patient = false;

    friend bool operator==(const Ask&, const Ask&) = default;
};
[[nodiscard]] std::string_view to_string(Ask::Kind kind) noexcept;

/// Bytes of an image, or of a file.
struct Range {
    std::uint64_t begin = 0;
    std::uint64_t bytes = 0;
};
/// The range that `ask` wants of an image of `bytes`; `bytes` of it is 0 if it is empty.
[[nodiscard]] Range range_of(const Ask& ask, std::uint64_t bytes) noexcept;

struct Answer {
    std::string error{};  ///< A sentence; empty: it has been done.
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    /// To saved: the time has come to write a version to the folder. Only the agent of group rank 0
    /// says so, so that all agents write the same version.
    bool write = false;
    /// With an error to image: the node may have it, but cannot be reached.
    bool unreachable = false;

    friend bool operator==(const Answer&, const Answer&) = default;
};

/// The longest packet.
inline constexpr std::size_t kPacketBytesMax = 16384;

/// As JSON. Texts are cut to fit.
[[nodiscard]] std::string encode(const Ask& ask);
[[nodiscard]] std::string encode(const Answer& answer);
/// Errors: invalid_argument.
[[nodiscard]] Result<Ask> decode_ask(std::string_view packet);
[[nodiscard]] Result<Answer> decode_answer(std::string_view packet);

}  // namespace regroup::snapshot
