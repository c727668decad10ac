// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/job.h"

#include <algorithm>
#include <utility>

namespace regroup::rendezvous {

Job::Job(journal::JobKey key_in, JobPolicy policy, Instant now)
    : key(std::move(key_in)), core(std::move(policy)), shift_(-now.time_since_epoch()) {}

Job Job::following(const Job& old, JobPolicy policy, std::int64_t wall_ms, Instant now,
                   Duration retention, std::vector<journal::Entry>& entries) {
    const std::int64_t began_ms = std::max(wall_ms, old.key.began_ms + 1);
    Job job({old.key.id, began_ms}, policy, now);
    // A core learns which rounds there have been from nodes that have seen them: one such node
    // comes, still at work so that no round is formed of it, and goes.
    NodeJoined witness{"the job before", std::move(policy), {}, {}};
    witness.offer.name = witness.node;
    witness.offer.workers = 1;
    witness.report.round = old.core.round();
    witness.report.state = NodeState::running;
    const NodeLeft gone{witness.node, "it is over"};
    for (const Event& event : {Event(witness), Event(gone)}) {
        entries.push_back({job.timeline(now), wall_ms, event, {}});
        // What is said to it is said to nobody.
        static_cast<void>(journal::apply(job.core, entries.back()));
    }
    if (const auto& verdict = old.core.verdict()) {
        job.former_ =
            Former{*verdict, old.core.round(), old.nodes_, after(old.idle_since, retention)};
    }
    return job;
}

Result<Job> Job::restored(const journal::StoredJob& stored, std::int64_t wall_ms, Instant now) {
    const JobPolicy* policy =
        stored.entries.empty() ? nullptr : journal::policy_of(stored.entries.front());
    if (policy == nullptr) {
        return Failure(Errc::invalid_argument,
                       "what is kept of job " + stored.key.id + " does not begin with a node");
    }
    Job job(stored.key, *policy, now);
    Instant last{};
    for (const journal::Entry& entry : stored.entries) {
        if (entry.at < last) {
            return Failure(Errc::invalid_argument,
                           "what is kept of job " + stored.key.id + " goes back in time");
        }
        last = entry.at;
        static_cast<void>(journal::apply(job.core, entry));
        if (const auto* joined = entry.event ? std::get_if<NodeJoined>(&*entry.event) : nullptr) {
            job.remember(joined->node);
        }
        if (entry.event) {
            job.told(*entry.event);
        }
    }
    // A wall clock that was set back makes the time away zero, never less.
    const std::int64_t away_ms = std::max<std::int64_t>(0, wall_ms - stored.entries.back().wall_ms);
    job.shift_ += last.time_since_epoch() + std::chrono::milliseconds(away_ms);
    return job;
}

Instant Job::timeline(Instant now) const {
    return Instant(std::chrono::floor<std::chrono::microseconds>(now.time_since_epoch() + shift_));
}

Instant Job::next_deadline() const {
    const Instant next = core.next_deadline();
    // One that lies between two microseconds of the timeline is due at the second.
    return next == Instant::max() ? next : next - shift_ + std::chrono::microseconds(1);
}

void Job::remember(const NodeId& node) {
    if (nodes_.size() < RendezvousCore::kNodesLimit) {
        nodes_.insert(node);
    }
}

void Job::told(const Event& event) {
    if (std::holds_alternative<NodeLeft>(event)) {
        left_ = core.nodes_count() == 0;
    } else if (std::holds_alternative<NodeJoined>(event)) {
        left_ = left_ && core.nodes_count() == 0;
    }
}

bool Job::is_done_without(const Join& join) const {
    const auto& verdict = core.verdict();
    const bool is_done =
        verdict ? verdict->outcome == Outcome::succeeded || verdict->exit_code == kExitRequeue
                : left_;
    return is_done && join.report.round == RoundId::none && !nodes_.contains(join.node);
}

const Verdict* Job::former_verdict(const Join& join, Instant now) const {
    if (!former_ || now >= former_->until || nodes_.contains(join.node)) {
        return nullptr;
    }
    const bool took_part =
        join.report.round != RoundId::none && join.report.round <= former_->round;
    return took_part || former_->nodes.contains(join.node) ? &former_->verdict : nullptr;
}

void Job::hold(const NodeId& node, journal::Entry entry) {
    held_.insert_or_assign(node, std::move(entry));
}

std::vector<journal::Entry> Job::with_held(journal::Entry entry) {
    std::multimap<Instant, journal::Entry> in_order;
    for (auto& [node, held] : held_) {
        in_order.emplace(held.at, std::move(held));
    }
    held_.clear();
    std::vector<journal::Entry> entries;
    for (auto& [at, held] : in_order) {
        entries.push_back(std::move(held));
    }
    entries.push_back(std::move(entry));
    return entries;
}

}  // namespace regroup::rendezvous
