// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/journal/journal.h"

#include <variant>

namespace regroup::journal {

using rendezvous::Effects;
using rendezvous::RendezvousCore;

Effects apply(RendezvousCore& core, const Entry& entry) {
    return entry.event ? core.step(entry.at, *entry.event) : core.advance(entry.at);
}

const rendezvous::JobPolicy* policy_of(const Entry& first) {
    const auto* joined = first.event ? std::get_if<rendezvous::NodeJoined>(&*first.event) : nullptr;
    return joined == nullptr ? nullptr : &joined->policy;
}

std::vector<Assigned> assignments_of(const Effects& effects) {
    std::vector<Assigned> assigned;
    for (const rendezvous::Send& effect : effects) {
        if (const auto* assign = std::get_if<rendezvous::Assign>(&effect.message)) {
            assigned.push_back({effect.node, assign->assignment});
        }
    }
    return assigned;
}

}  // namespace regroup::journal
