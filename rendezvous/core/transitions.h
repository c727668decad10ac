// SPDX-License-Identifier: Apache-2.0
//
// The guards and actions of the table in transitions.cc, by file. Internal.
#pragma once

#include <optional>
#include <vector>

#include "rendezvous/core/job.h"

namespace regroup::rendezvous::core {

/// Applies rows of the table as long as one matches. Only here does the phase change, a round form
/// or end, or a budget get charged. `clock`: the time that a guard may compare with deadlines,
/// `now` in `advance`, Instant::min() in `step`.
void transit(Job& job, Instant now, Instant clock);

// A round forms (forming.cc).

[[nodiscard]] bool too_few_left(const Job& job, Instant clock);
[[nodiscard]] bool nobody_came(const Job& job, Instant clock);
[[nodiscard]] bool needs_quarantined(const Job& job, Instant clock);
[[nodiscard]] bool can_form(const Job& job, Instant clock);
void release_quarantined(Job& job, Instant now);
void form(Job& job, Instant now);
void begin_forming(Job& job, Instant now);
/// While forming: updates `last_call_until`.
void update_last_call(Job& job, Instant now);
/// When the node, which waits for others, gives up.
[[nodiscard]] Instant gives_up_at(const Node& node);
/// The same for the first of the members.
[[nodiscard]] Instant first_gives_up_at(const Job& job);

// A round changes at a step boundary (changing.cc).

[[nodiscard]] bool must_change(const Job& job, Instant clock);
[[nodiscard]] bool must_change_more(const Job& job, Instant clock);
[[nodiscard]] bool lost_with_daemon(const Job& job, Instant clock);
void begin_change(Job& job, Instant now);
void change_more(Job& job, Instant now);
void end_at_boundary(Job& job, Instant now);
[[nodiscard]] bool may_grow(const Job& job);
/// When the round changes to admit waiting nodes; Instant::max(): it does not.
[[nodiscard]] Instant grow_at(const Job& job);
void begin_planned_incident(Job& job, Instant now);

// Some ranks have finished, and others go on (finishing.cc).

[[nodiscard]] bool is_unfinished(const Job& job, Instant clock);
void close_unfinished(Job& job, Instant now);
/// Unknown, unless the round trains and that is so.
[[nodiscard]] PartialFinish partial_finish(const Job& job, Instant now);
/// When people are told so; Instant::max(): they have been, or there is nothing to tell.
[[nodiscard]] Instant tell_finish_at(const Job& job);
void tell_finish(Job& job, Instant now);
/// When the job is closed for it; Instant::max(): never.
[[nodiscard]] Instant finish_deadline(const Job& job);

// A round ends (ending.cc).

[[nodiscard]] bool all_finished(const Job& job, Instant clock);
[[nodiscard]] bool must_end(const Job& job, Instant clock);
[[nodiscard]] bool is_out(const Job& job, Instant clock);
void begin_ending(Job& job, Instant now);
void end_round(Job& job, Instant now);
/// When a broken link that only one end reports ends the round; Instant::max(): not yet known.
[[nodiscard]] Instant link_deadline(const Job& job);

// Charges for the end of a round, and the end of the job (charges.cc).

/// Charges the end of the round. Returns the verdict if a budget is exhausted.
[[nodiscard]] std::optional<Verdict> charge(Job& job, Instant now);
void close_stopped(Job& job, Instant now);
void close_drained(Job& job, Instant now);
void close_too_few_left(Job& job, Instant now);
void close_nobody_came(Job& job, Instant now);
void close_finished(Job& job, Instant now);
void close(Job& job, Instant now, Verdict verdict);

/// The round begins to train, which ends `incidents`.
void begin_training(Job& job, Instant now, const std::vector<Incident>& incidents);

}  // namespace regroup::rendezvous::core
