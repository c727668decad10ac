// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>

#include <cstdint>
#include <memory>
#include <string_view>

#include "worker_sdk/src/cpu/peer.h"

namespace regroup::cpu {

/// ProcessGroup::create for this back end. Ranks find each other through the context's store, under
///
///     pg/<name>/<round>.<restart>/attempt/<rank>          how often the rank has come
///     pg/<name>/<round>.<restart>/<attempt>/addr/<rank>   "<address>:<port> <token> <node>
///     [offer]"
///
/// The attempt separates groups that are formed one after the other under one name.
[[nodiscard]] std::unique_ptr<ProcessGroup> form_group(const Context& context,
                                                       const ProcessGroupOptions& options);

/// A peer with its name for people.
[[nodiscard]] Peer make_peer(std::uint32_t rank, std::uint32_t world_rank,
                             const net::SocketAddress& address, std::uint64_t token,
                             std::uint64_t node);
/// From the kernel. Throws Error `system`.
[[nodiscard]] std::uint64_t random_token();

}  // namespace regroup::cpu
