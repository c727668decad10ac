// SPDX-License-Identifier: Apache-2.0
//
// The transitions between the phases of a RendezvousCore. The guards and actions of the rows are in
// forming.cc, changing.cc, finishing.cc, ending.cc and charges.cc.
#include "rendezvous/core/transitions.h"

#include <algorithm>
#include <iterator>

namespace regroup::rendezvous::core {

namespace {

struct Transition {
    Phase from;
    bool (*when)(const Job& job, Instant clock);
    void (*apply)(Job& job, Instant now);
};

bool must_stop(const Job& job, Instant /*clock*/) {
    return job.stop.has_value();
}

// The first matching row is applied; this repeats until no row matches. docs/design.md shows this
// table with the meaning of each row.
constexpr Transition kTransitions[] = {
    {Phase::forming, must_stop, close_stopped},
    {Phase::forming, too_few_left, close_too_few_left},
    {Phase::forming, nobody_came, close_nobody_came},
    {Phase::forming, needs_quarantined, release_quarantined},
    {Phase::forming, can_form, form},

    {Phase::training, must_stop, close_stopped},
    {Phase::training, all_finished, close_finished},
    {Phase::training, must_end, begin_ending},
    {Phase::training, is_unfinished, close_unfinished},
    {Phase::training, must_change, begin_change},

    {Phase::changing, must_stop, close_stopped},
    {Phase::changing, lost_with_daemon, close_drained},
    {Phase::changing, all_finished, close_finished},
    {Phase::changing, must_end, begin_ending},
    {Phase::changing, is_unfinished, close_unfinished},
    {Phase::changing, is_out, end_at_boundary},
    {Phase::changing, must_change_more, change_more},

    {Phase::ending, must_stop, close_stopped},
    {Phase::ending, lost_with_daemon, close_drained},
    {Phase::ending, all_finished, close_finished},
    {Phase::ending, is_out, end_round},
};

}  // namespace

void transit(Job& job, Instant now, Instant clock) {
    const Transition* row = nullptr;
    do {
        update_last_call(job, now);
        row = std::ranges::find_if(kTransitions, [&](const Transition& candidate) {
            return candidate.from == job.phase && candidate.when(job, clock);
        });
        if (row != std::end(kTransitions)) {
            row->apply(job, now);
        }
    } while (row != std::end(kTransitions));
}

}  // namespace regroup::rendezvous::core
