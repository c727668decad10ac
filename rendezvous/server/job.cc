// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/job.h"

#include <utility>

#include "rendezvous/base/ensure.h"

namespace regroup::rendezvous {

Job Job::following(const Job& old, JobPolicy policy, Instant now, Duration retention) {
    ENSURE(old.core.verdict());
    Job job(policy);
    // A core learns which rounds there have been from nodes that have seen them: one such node
    // comes, still at work so that no round is formed of it, and goes.
    NodeJoined witness{"the job before", std::move(policy), {}, {}};
    witness.offer.name = witness.node;
    witness.offer.workers = 1;
    witness.report.round = old.core.round();
    witness.report.state = NodeState::running;
    // What is said to it is said to nobody.
    static_cast<void>(job.core.step(now, witness));
    static_cast<void>(job.core.step(now, NodeLeft{witness.node, "it is over"}));
    job.former_ =
        Former{*old.core.verdict(), old.core.round(), old.nodes_, after(old.idle_since, retention)};
    return job;
}

void Job::remember(const NodeId& node) {
    if (nodes_.size() < RendezvousCore::kNodesLimit) {
        nodes_.insert(node);
    }
}

bool Job::is_done_without(const Join& join) const {
    return core.verdict() && core.verdict()->outcome == Outcome::succeeded &&
           join.report.round == RoundId::none && !nodes_.contains(join.node);
}

const Verdict* Job::former_verdict(const Join& join, Instant now) const {
    if (!former_ || now >= former_->until || nodes_.contains(join.node)) {
        return nullptr;
    }
    const bool took_part =
        join.report.round != RoundId::none && join.report.round <= former_->round;
    return took_part || former_->nodes.contains(join.node) ? &former_->verdict : nullptr;
}

}  // namespace regroup::rendezvous
