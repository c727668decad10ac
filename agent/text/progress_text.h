// SPDX-License-Identifier: Apache-2.0
//
// Sentences about what a node waits for, with how far it has come. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "agent/core/agent_core.h"
#include "agent/watch/progress_watch.h"
#include "rendezvous/core/messages.h"

namespace regroup::agent {

/// The activity of this node's workers before their end or their next round, and when they are
/// killed: "waiting for 3 workers to end; SIGKILL in 27 s". Empty if the node waits for none, and
/// in the last second, since a line about the kill follows.
[[nodiscard]] std::string parting_text(const AgentCore::Parting& parting, Instant now);

/// The activity of this node's workers before their first step of a round: "round 3: 1 of 4 workers
/// has started". Empty once all train. `workers`: how many the node has.
[[nodiscard]] std::string joining_text(std::span<const WorkerLook> looks, rendezvous::RoundId round,
                                       std::uint32_t workers);

/// The bytes that the workers of this node move: "saving a checkpoint: 120 of 480 MB". Empty if
/// they move none.
[[nodiscard]] std::string transfer_text(std::span<const WorkerLook> looks);

/// New processes of a Python program took `taken` until their first sign, and --preload can save a
/// part of it. `has_torch`: they have loaded PyTorch.
[[nodiscard]] std::string slow_start_text(Duration taken, bool has_torch);

}  // namespace regroup::agent
