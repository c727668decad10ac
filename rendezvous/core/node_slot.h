// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace regroup::rendezvous {

/// The number of a node among the nodes of its job. Small: slots of nodes that are gone are used
/// again.
using NodeSlot = std::uint32_t;

}  // namespace regroup::rendezvous
