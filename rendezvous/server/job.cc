// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/job.h"

#include <algorithm>
#include <utility>

#include "rendezvous/base/wall_clock.h"

namespace regroup::rendezvous {

namespace {

// "Now" for the rate of steps.
constexpr Duration kRateWindow = std::chrono::seconds(10);
// A job without a step for less than this does not stand still. Reports come less often than steps.
constexpr Duration kStallPatience = std::chrono::seconds(10);
// An element of a set of ids, without the id.
constexpr std::size_t kIdBytes = 80;

}  // namespace

Job::Job(journal::JobKey key_in, JobPolicy policy, Instant now)
    : key(std::move(key_in)),
      core(std::move(policy), key.began_ms),
      history(key.id),
      shift_(-now.time_since_epoch()),
      deserted_since_(now) {}

Job::Job(journal::JobKey key_in, RendezvousCore core_in, Attendance attendance,
         JobHistory history_in, Duration shift, Instant now)
    : key(std::move(key_in)),
      core(std::move(core_in)),
      history(std::move(history_in)),
      shift_(shift),
      deserted_since_(now),
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
    if (nodes.size() < journal::kNodesMax && nodes.insert(node).second) {
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

void Job::told(const Event& event) {
    drain_waits.note(event);
    attendance_.note(event, core);
}

void Job::hear(const NodeId& node, RoundId round, Telemetry said, Instant now) {
    if (round == core.round() && core.has_member(node)) {
        telemetry.hear(node, std::move(said), timeline(now));
    }
}

void Job::hear(const NodeId& node, RoundId round, SnapshotFacts said, Instant now) {
    if (round == core.round() && core.has_member(node)) {
        snapshots.hear(said, timeline(now));
    }
}

std::vector<SlowRank> Job::hear(const NodeId& node, RoundId round, const WorkWindow& said) {
    const bool counts = round == core.round() && core.has_member(node);
    return counts ? slow_ranks.hear(node, round, said) : std::vector<SlowRank>();
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

JobView Job::view(Instant now) const {
    JobView view;
    view.job = key.id;
    view.began_ms = key.began_ms;
    view.now_ms = wall_ms();
    view.now = timeline(now);
    view.status = core.status(view.now);
    view.state = history.state();
    view.totals = history.totals(view.now);
    view.step_rate = history.step_rate(view.now, kRateWindow);
    view.samples = history.samples();
    view.last_loss = history.last_loss();
    if (const std::optional<Instant> at = history.last_step_at()) {
        const Duration since = view.now - *at;
        view.last_step = since;
        view.stalled = history.stalled_for(
            view.now, std::max(kStallPatience, core.policy().heartbeat_timeout));
        view.last_step_ms =
            view.now_ms - std::chrono::duration_cast<std::chrono::milliseconds>(since).count();
    }
    view.last_event = history.last_number();
    view.telemetry = telemetry;
    view.snapshots = snapshots;
    view.slow_ranks = slow_ranks.now();
    return view;
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
