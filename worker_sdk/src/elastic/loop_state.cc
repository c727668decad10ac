// SPDX-License-Identifier: Apache-2.0
//
// How a Loop comes by the state that a round goes on from.
#include <regroup/error.h>

#include <string>
#include <vector>

#include "worker_sdk/src/elastic/loop.h"
#include "worker_sdk/src/elastic/standing.h"
#include "worker_sdk/src/link/process_link.h"

namespace regroup::elastic {

void Loop::bring_state() {
    const Groups groups = round_->groups();
    const std::vector<Standing> all =
        gather_standings(groups.control, {.step = step_,
                                          .samples = samples_,
                                          .history = fresh_ ? link::new_history() : history_,
                                          .layout = kept_.layout(),
                                          .fresh = fresh_ ? 1U : 0U,
                                          .torn = torn_ ? 1U : 0U});
    const Origin origin = choose_origin(all);
    if (is_state_lost(all)) {
        give_up_state();
    }
    if (origin.is_needed) {
        // Who has the same state already is sent the very bytes that are there.
        const bool receives = groups.control.rank() != origin.rank;
        if (receives && (fresh_ || step_ != origin.standing.step)) {
            torn_ = true;
            beacon_.forget_state();
        }
        kept_.broadcast(groups, origin.rank);
    }
    // From here on this rank has it, whoever is lost before all have been compared.
    step_ = origin.standing.step;
    samples_ = origin.standing.samples;
    history_ = origin.standing.history;
    fresh_ = torn_ = false;
    kept_.compare(groups);
    link::enter_history(history_);
    beacon_.committed(step_);
}

/// The job goes on from what processes begin with, which those here have overwritten.
void Loop::give_up_state() {
    if (torn_) {
        const std::string text =
            "the last rank that had all of the state was lost while it sent it to this one, which "
            "has half of it; the job begins again from its checkpoint";
        if (link_) {
            link_->send(worker_link::Fatal{.kind = worker_link::FatalKind::retry, .text = text});
        }
        throw Error(Errc::system, text);
    }
    // Fresh itself: it waits for those that come in their place. Nobody enters this one.
    round_->control().barrier().wait();
    throw Error(Errc::disconnected, "the ranks with half a state have not left the round");
}

}  // namespace regroup::elastic
