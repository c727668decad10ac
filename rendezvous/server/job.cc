// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/job.h"

#include <algorithm>
#include <utility>

namespace regroup::rendezvous {

Job::Job(journal::JobKey key_in, JobPolicy policy, Instant now)
    : key(std::move(key_in)), core(std::move(policy)), shift_(-now.time_since_epoch()) {}

Job::Job(journal::JobKey key_in, RendezvousCore core_in, Attendance attendance, Duration shift)
    : key(std::move(key_in)),
      core(std::move(core_in)),
      shift_(shift),
      attendance_(std::move(attendance)) {}

Job Job::following(const Job& old, JobPolicy policy, std::int64_t wall_ms, Instant now,
                   Duration retention, std::vector<journal::Entry>& entries) {
    const std::int64_t began_ms = std::max(wall_ms, old.key.began_ms + 1);
    Job job({old.key.id, began_ms}, policy, now);
    entries.push_back(
        {job.timeline(now), wall_ms, JobFollows{std::move(policy), old.core.round()}, {}});
    // This event has no effects.
    static_cast<void>(journal::apply(job.core, entries.back()));
    job.remember_former(old, retention);
    return job;
}

bool Job::remember_former(const Job& old, Duration retention) {
    if (const auto& verdict = old.core.verdict()) {
        former_ = Former{old.key, *verdict, old.core.round(), old.attendance_.nodes,
                         after(old.idle_since, retention)};
    }
    return former_.has_value();
}

std::optional<journal::JobKey> Job::take_outdated(Instant now) {
    if (!former_ || now < former_->until) {
        return std::nullopt;
    }
    return std::exchange(former_, std::nullopt)->key;
}

Instant Job::timeline(Instant now) const {
    return Instant(std::chrono::floor<std::chrono::microseconds>(now.time_since_epoch() + shift_));
}

Instant Job::next_deadline() const {
    const Instant next = core.next_deadline();
    // A deadline between two microseconds of the timeline is due at the second one.
    return next == Instant::max() ? next : next - shift_ + std::chrono::microseconds(1);
}

void Job::Attendance::add(const NodeId& node) {
    if (nodes.size() < RendezvousCore::kNodesLimit) {
        nodes.insert(node);
    }
}

void Job::Attendance::note(const Event& event, const RendezvousCore& after) {
    if (std::holds_alternative<NodeLeft>(event)) {
        left = after.nodes_count() == 0;
    } else if (std::holds_alternative<NodeJoined>(event)) {
        left = left && after.nodes_count() == 0;
    }
}

void Job::remember(const NodeId& node) {
    attendance_.add(node);
}

void Job::told(const Event& event) {
    drain_waits.note(event);
    attendance_.note(event, core);
}

bool Job::is_done_without(const Join& join) const {
    const auto& verdict = core.verdict();
    const bool is_done =
        verdict ? verdict->outcome == Outcome::succeeded || verdict->exit_code == kExitRequeue
                : attendance_.left;
    return is_done && join.report.round == RoundId::none && !attendance_.nodes.contains(join.node);
}

const Verdict* Job::former_verdict(const Join& join, Instant now) const {
    if (!former_ || now >= former_->until || attendance_.nodes.contains(join.node)) {
        return nullptr;
    }
    const bool took_part =
        join.report.round != RoundId::none && join.report.round <= former_->round;
    return took_part || former_->nodes.contains(join.node) ? &former_->verdict : nullptr;
}

void Job::hold(const NodeId& node, journal::Entry entry) {
    held_.insert_or_assign(node, std::move(entry));
}

void Job::drain_held() {
    std::multimap<Instant, journal::Entry> in_order;
    for (auto& [node, held] : held_) {
        in_order.emplace(held.at, std::move(held));
    }
    held_.clear();
    for (auto& [at, held] : in_order) {
        deferred_.push_back(std::move(held));
    }
}

void Job::defer(journal::Entry entry) {
    drain_held();
    deferred_.push_back(std::move(entry));
}

std::vector<journal::Entry> Job::with_held(journal::Entry entry) {
    defer(std::move(entry));
    return take_deferred();
}

std::vector<journal::Entry> Job::take_deferred() {
    return std::exchange(deferred_, {});
}

Result<bool> JobRestoration::read() {
    return reader_.read([this](const journal::Entry& entry, const Effects& /*effects*/) {
        if (!entry.event) {
            return;
        }
        if (const auto* joined = std::get_if<NodeJoined>(&*entry.event)) {
            attendance_.add(joined->node);
        }
        attendance_.note(*entry.event, reader_.core());
    });
}

Job JobRestoration::finish(std::int64_t wall_ms, Instant now) && {
    // If the wall clock was set back, the time away counts as zero.
    const std::int64_t away_ms = std::max<std::int64_t>(0, wall_ms - reader_.last_wall_ms());
    const Duration shift = reader_.last_at().time_since_epoch() +
                           std::chrono::milliseconds(away_ms) - now.time_since_epoch();
    Job job(reader_.key(), std::move(reader_.core()), std::move(attendance_), shift);
    if (job.core.phase() == Phase::closed) {
        job.idle_since = now - std::chrono::milliseconds(away_ms);
    }
    return job;
}

}  // namespace regroup::rendezvous
