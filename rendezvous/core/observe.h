// SPDX-License-Identifier: Apache-2.0
//
// Events are recorded, and nothing is decided. Internal.
#pragma once

#include <optional>

#include "rendezvous/core/job.h"

namespace regroup::rendezvous::core {

void observe(Job& job, Instant now, const NodeJoined& event);
void observe(Job& job, Instant now, const NodeReported& event);
void observe(Job& job, Instant now, const NodeDisconnected& event);
void observe(Job& job, Instant now, const NodeLeft& event);
void observe(Job& job, Instant now, const StopRequested& event);
void observe(Job& job, Instant now, const DrainRequested& event);
void observe(Job& job, Instant now, const ReleaseRequested& event);
void observe(Job& job, Instant now, const NodeResumed& event);
void observe(Job& job, Instant now, const Restarted& event);
void observe(Job& job, Instant now, const JobFollows& event);
void observe(Job& job, Instant now, const SlowRankFound& event);
/// False if the job knows a node of this id whose agent has another secret.
[[nodiscard]] bool is_proven(const Job& job, const NodeId& node, const Offer& offer);

// Admission (admission.cc).

[[nodiscard]] std::optional<Refused> refusal(const Job& job, Instant now, const NodeJoined& event);
/// True if no node of the last round ran the command of this offer, as far as is known, and the job
/// does not ask for standbys.
[[nodiscard]] bool runs_other_command(const Job& job, const Offer& offer);

// Departures of nodes (losses.cc).

/// The only function that removes a node. `sign`: the time of the first sign.
void lose(Job& job, Instant now, const NodeId& id, const Departure& how, Instant sign);
void observe_silence(Job& job, Instant now);
/// Removes nodes that have not confirmed in time that their workers are gone.
void lose_overdue(Job& job, Instant now);

// Hangs (hangs.cc), and ranks that have ended with success (finishing.cc).

void observe_hang(Job& job, Instant now, const NodeId& id, const Node& node);
/// The inquiry's time is over.
void overdue_inquiry(Job& job, Instant now);
void observe_finished(Job& job, Instant now, const Node& node);

}  // namespace regroup::rendezvous::core
