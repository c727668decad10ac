// SPDX-License-Identifier: Apache-2.0
//
// The transitions between the phases of a RendezvousCore. The guards and actions of the rows are in
// forming.cc, changing.cc, finishing.cc, ending.cc and charges.cc.
#include "rendezvous/core/rendezvous_core.h"

namespace regroup::rendezvous {

// The first matching row is applied; this repeats until no row matches. docs/design.md shows this
// table with the meaning of each row.
const RendezvousCore::Transition RendezvousCore::kTransitions[] = {
    {Phase::forming, &RendezvousCore::must_stop, &RendezvousCore::close_stopped},
    {Phase::forming, &RendezvousCore::too_few_left, &RendezvousCore::close_too_few_left},
    {Phase::forming, &RendezvousCore::nobody_came, &RendezvousCore::close_nobody_came},
    {Phase::forming, &RendezvousCore::needs_quarantined, &RendezvousCore::release_quarantined},
    {Phase::forming, &RendezvousCore::can_form, &RendezvousCore::form},

    {Phase::training, &RendezvousCore::must_stop, &RendezvousCore::close_stopped},
    {Phase::training, &RendezvousCore::all_finished, &RendezvousCore::close_finished},
    {Phase::training, &RendezvousCore::must_end, &RendezvousCore::begin_ending},
    {Phase::training, &RendezvousCore::is_unfinished, &RendezvousCore::close_unfinished},
    {Phase::training, &RendezvousCore::must_change, &RendezvousCore::begin_change},

    {Phase::changing, &RendezvousCore::must_stop, &RendezvousCore::close_stopped},
    {Phase::changing, &RendezvousCore::lost_with_daemon, &RendezvousCore::close_drained},
    {Phase::changing, &RendezvousCore::all_finished, &RendezvousCore::close_finished},
    {Phase::changing, &RendezvousCore::must_end, &RendezvousCore::begin_ending},
    {Phase::changing, &RendezvousCore::is_unfinished, &RendezvousCore::close_unfinished},
    {Phase::changing, &RendezvousCore::is_at_boundary, &RendezvousCore::end_at_boundary},
    {Phase::changing, &RendezvousCore::must_change_more, &RendezvousCore::change_more},

    {Phase::ending, &RendezvousCore::must_stop, &RendezvousCore::close_stopped},
    {Phase::ending, &RendezvousCore::lost_with_daemon, &RendezvousCore::close_drained},
    {Phase::ending, &RendezvousCore::all_finished, &RendezvousCore::close_finished},
    {Phase::ending, &RendezvousCore::is_out, &RendezvousCore::end_round},
};

void RendezvousCore::transit(Instant now, Instant clock) {
    for (bool changed = true; changed;) {
        changed = false;
        update_last_call(now);
        for (const Transition& row : kTransitions) {
            if (row.from == phase_ && (this->*row.when)(clock)) {
                (this->*row.apply)(now);
                changed = true;
                break;
            }
        }
    }
}

bool RendezvousCore::must_stop(Instant /*clock*/) const {
    return stop_.has_value();
}

}  // namespace regroup::rendezvous
