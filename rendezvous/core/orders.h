// SPDX-License-Identifier: Apache-2.0
//
// The orders to each node, and the view that people have of the job. Internal.
#pragma once

#include "rendezvous/core/job.h"
#include "rendezvous/core/job_status.h"

namespace regroup::rendezvous::core {

// Orders (desired.cc).

/// The order that the node should have acted on.
[[nodiscard]] FromDaemon desired(const Job& job, Instant now, const NodeId& id, const Node& node);
[[nodiscard]] Waiting waiting(const Job& job, Instant now, const NodeId& id, const Node& node);
/// True unless the report of the node shows that it has acted on `word` already.
[[nodiscard]] bool needs_telling(const FromDaemon& word, const Node& node);
/// Sends their orders to the nodes that this step concerns.
void reconcile(Job& job, Instant now);

// The state of the job as a value (status.cc).

[[nodiscard]] Situation situation(const Job& job, Instant now);
[[nodiscard]] JobStatus status(const Job& job, Instant now);

}  // namespace regroup::rendezvous::core
