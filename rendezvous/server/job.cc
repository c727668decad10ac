// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/job.h"

#include <algorithm>
#include <utility>

namespace regroup::rendezvous {

namespace {

// A node says a few kilobytes in a round, and at most some tens more when a worker fails. At these
// rates one node needs hours to fill the journal of its job.
constexpr Allowance::Rate kNodeRate{std::size_t{2} << 20U, std::size_t{4} << 10U};
// Enough for the joins of the most nodes at once, and then for a few nodes each second.
constexpr Allowance::Rate kNewcomersRate{std::size_t{24} << 20U, std::size_t{8} << 10U};
// An element of a set of ids, without the id.
constexpr std::size_t kIdBytes = 80;

}  // namespace

Job::Job(journal::JobKey key_in, JobPolicy policy, Instant now)
    : key(std::move(key_in)),
      core(std::move(policy)),
      history(key.id),
      shift_(-now.time_since_epoch()),
      deserted_since_(now),
      newcomers_(kNewcomersRate) {}

Job::Job(journal::JobKey key_in, RendezvousCore core_in, Attendance attendance,
         JobHistory history_in, Duration shift, Instant now)
    : key(std::move(key_in)),
      core(std::move(core_in)),
      history(std::move(history_in)),
      shift_(shift),
      deserted_since_(now),
      newcomers_(kNewcomersRate),
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
    if (nodes.size() < RendezvousCore::kNodesLimit && nodes.insert(node).second) {
        bytes += kIdBytes + node.size();
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

std::shared_ptr<Session> Job::connect(const NodeId& node, std::shared_ptr<Session> session) {
    deserted_since_ = Instant::max();
    return std::exchange(sessions_[node], std::move(session));
}

void Job::disconnect(const NodeId& node, Instant now) {
    if (sessions_.erase(node) > 0 && sessions_.empty()) {
        deserted_since_ = now;
    }
}

bool Job::is_expendable() const {
    const bool is_empty = core.nodes_count() == 0 && core.phase() != Phase::closed;
    return sessions_.empty() && (core.round() == RoundId::none || is_empty);
}

bool Job::may_grow_for(const NodeId& node, std::size_t bytes, Instant now) {
    return allowances_.try_emplace(node, kNodeRate).first->second.take(bytes, now);
}

bool Job::may_grow_for_newcomer(std::size_t bytes, Instant now) {
    return newcomers_.take(bytes, now);
}

void Job::forget_allowances(Instant now) {
    for (auto next = allowances_.begin(); next != allowances_.end();) {
        const auto entry = next++;
        if (entry->second.is_full(now)) {
            allowances_.erase(entry);
        }
    }
}

void Job::told(const Event& event) {
    drain_waits.note(event);
    attendance_.note(event, core);
}

void Job::hear(const NodeId& node, RoundId round, Telemetry said, Instant now) {
    if (round == core.round() && core.has_member(node)) {
        telemetry.hear(node, std::move(said), timeline(now));
    }
}

bool Job::is_done_without(const Join& join, Instant now) const {
    if (join.report.round != RoundId::none || attendance_.nodes.contains(join.node)) {
        return false;
    }
    return core.verdict() ? now - join.began_ago >= idle_since : attendance_.left;
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
        history_.record(reader_.core().job_events(), entry.wall_ms);
        if (!entry.event) {
            return;
        }
        if (const auto* joined = std::get_if<NodeJoined>(&*entry.event)) {
            attendance_.add(joined->node);
        } else if (const auto* reported = std::get_if<NodeReported>(&*entry.event)) {
            history_.reached(entry.at, reported->report.step);
        }
        attendance_.note(*entry.event, reader_.core());
    });
}

Job JobRestoration::finish(std::int64_t wall_ms, Instant now) && {
    // If the wall clock was set back, the time away counts as zero. No wait of a job is longer than
    // kWaitMax, so a longer time away makes no difference, and the timeline stays within its
    // bounds.
    constexpr auto kAwayMax = std::chrono::duration_cast<std::chrono::milliseconds>(kWaitMax);
    const std::int64_t away_ms =
        std::clamp<std::int64_t>(wall_ms - reader_.last_wall_ms(), 0, kAwayMax.count());
    const Duration shift = reader_.last_at().time_since_epoch() +
                           std::chrono::milliseconds(away_ms) - now.time_since_epoch();
    Job job(reader_.key(), std::move(reader_.core()), std::move(attendance_), std::move(history_),
            shift, now);
    job.journal_ended_in = job.core.round();
    if (job.core.phase() == Phase::closed) {
        job.idle_since = now - std::chrono::milliseconds(away_ms);
    }
    return job;
}

}  // namespace regroup::rendezvous
