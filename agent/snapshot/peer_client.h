// SPDX-License-Identifier: Apache-2.0
//
// The questions of one agent to another about snapshots. The messages are those of a worker's
// channel:
//
//     image   -> an Answer, and as many bytes
//     whole   -> an Answer
//     kept    -> an Answer
//     saved   -> an Answer: how many bytes are wanted; those bytes; an Answer: they are kept
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "agent/snapshot/held_copies.h"
#include "agent/snapshot/image_memory.h"
#include "agent/snapshot/peer_stream.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/snapshot/channel.h"

namespace regroup::agent {

/// The way to another agent. `sockets` can end it.
struct PeerPlace {
    std::string endpoint;
    PeerTrust trust;
    OpenSockets& sockets;
};

using MakeMemory = std::function<Result<std::shared_ptr<ImageMemory>>(std::uint64_t bytes)>;

/// Gets the image that `ask` names, in memory from `make_memory`. It is not verified. While the
/// peer cannot be reached, it tries again until `limit` has passed. Blocks. Errors: disconnected,
/// overloaded, with a sentence that names the peer.
Result<std::shared_ptr<ImageMemory>> get_image(const PeerPlace& place, const snapshot::Ask& ask,
                                               const MakeMemory& make_memory, Duration limit);

/// Gives the peer a copy, which it verifies. `known`: the peer may not have heard of it yet.
/// Blocks. Errors: as above.
Result<void> put_copy(const PeerPlace& place, const snapshot::PartId& id,
                      const snapshot::Version& version, std::span<const std::byte> image,
                      const KnownVersions& known);

}  // namespace regroup::agent
