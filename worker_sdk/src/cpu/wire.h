// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>
#include <regroup/tensor_view.h>

#include <array>
#include <cstdint>

#include "worker_sdk/src/group/standing.h"
#include "worker_sdk/src/net/wire_struct.h"

namespace regroup::cpu {

using net::bytes_of;
using net::Partial;
using net::WireStruct;

/// Each connection carries one kind of traffic and, except for control, in one direction only: from
/// the rank that dialled. So a message without a recv never delays a collective, and two ranks that
/// dial each other at the same moment are no special case.
enum class ChannelKind : std::uint32_t { control, collective, message };
inline constexpr std::uint32_t kChannelKinds = 3;

/// Precedes each message between two ranks.
struct MessageHeader {
    std::uint64_t count = 0;
    std::uint32_t tag = 0;
    DType dtype = DType::uint8;
    std::array<std::uint8_t, 3> zero{};
};

static_assert(WireStruct<Signature> && WireStruct<MessageHeader> && WireStruct<Standing>);

}  // namespace regroup::cpu
