// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/peer.h"

namespace regroup::cpu {

net::Hello hello_to(const GroupPosition& position, const Peer& peer, std::uint32_t target,
                    ChannelKind kind) {
    return {.kind = static_cast<std::uint32_t>(kind),
            .source = position.rank,
            .target = target,
            .round = position.round,
            .group = position.group,
            .token = peer.token};
}

}  // namespace regroup::cpu
