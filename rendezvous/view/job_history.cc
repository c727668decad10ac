// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/view/job_history.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

#include "rendezvous/view/event_line.h"

namespace regroup::rendezvous {

namespace {

constexpr std::size_t kRecentMax = 64;
// A step that takes so many times as long as the longest of those before is late.
constexpr int kLateFactor = 5;
constexpr Duration kRecentEvery = std::chrono::milliseconds(200);
// An event without its line, about.
constexpr std::size_t kEventBytes = 512;

bool is_planned(const Cause& cause) noexcept {
    const CauseWord word = cause_word(cause);
    return word == CauseWord::joined || word == CauseWord::drained;
}

std::size_t bytes_of(const RecordedEvent& entry) noexcept {
    return kEventBytes + 2 * entry.line->size();
}

}  // namespace

void JobHistory::record(const std::vector<JobEvent>& events, std::int64_t wall_ms) {
    for (const JobEvent& event : events) {
        count(event);
        if (const auto* failure = std::get_if<Boxed<WorkerFailure>>(&event.detail)) {
            last_loss_.failure = *failure;
            last_loss_.failure_ms = wall_ms;
        }
        if (const auto* incident = std::get_if<Boxed<Incident>>(&event.detail);
            incident != nullptr && !(*incident)->planned && !(*incident)->cut_short) {
            last_loss_.recovery_ms = wall_ms;
        }
        RecordedEvent entry{++last_number_, wall_ms, event, nullptr, nullptr};
        entry.line = std::make_shared<const std::string>(event_line(job_, entry));
        entry.brief = std::holds_alternative<JobEvent::Members>(event.detail)
                          ? std::make_shared<const std::string>(brief_event_line(job_, entry))
                          : entry.line;
        bytes_ += bytes_of(entry);
        events_.push_back(std::move(entry));
    }
    if (!events.empty()) {
        limit(bytes_max_);
    }
}

void JobHistory::limit(std::size_t bytes_max) {
    bytes_max_ = bytes_max;
    while (events_.size() > 1 && (events_.size() > kEventsMax || bytes_ > bytes_max_)) {
        bytes_ -= bytes_of(events_.front());
        events_.pop_front();
    }
}

void JobHistory::spend(Instant at, JobState state) {
    at = std::max(at, told_until_);
    if (at > settled_) {
        totals_.time[static_cast<std::size_t>(state)] += at - settled_;
        settled_ = at;
    }
}

void JobHistory::count(const JobEvent& event) {
    if (!std::exchange(began_, true)) {
        settled_ = event.at;
    }
    switch (event.kind) {
        case JobEvent::Kind::joined:
            ++totals_.nodes_joined;
            break;
        case JobEvent::Kind::left:
            ++totals_.nodes_left;
            break;
        case JobEvent::Kind::lost:
            ++totals_.nodes_lost;
            break;
        case JobEvent::Kind::quarantined:
            ++totals_.nodes_quarantined;
            break;
        case JobEvent::Kind::failed:
            ++totals_.worker_failures;
            break;
        case JobEvent::Kind::changing:
            planned_ = true;
            break;
        case JobEvent::Kind::ending:
            planned_ = is_planned(std::get<Cause>(event.detail));
            break;
        case JobEvent::Kind::assigned:
            ++totals_.rounds;
            break;
        case JobEvent::Kind::running:
            spend(event.at, state_);
            state_ = JobState::productive;
            trains_since_ = event.at;
            planned_ = false;
            break;
        case JobEvent::Kind::recovered:
            count(event, *std::get<Boxed<Incident>>(event.detail));
            break;
        case JobEvent::Kind::closed:
            spend(event.at, state_);
            ended_ = true;
            break;
        case JobEvent::Kind::draining:
        case JobEvent::Kind::released:
        case JobEvent::Kind::restored:
        case JobEvent::Kind::slow:
        case JobEvent::Kind::hanging:
        case JobEvent::Kind::finished:
            break;
    }
    const bool is_over = event.kind == JobEvent::Kind::ending ||
                         (event.kind == JobEvent::Kind::assigned && planned_);
    if (is_over && (state_ == JobState::productive || state_ == JobState::lost)) {
        // The time after the last committed step is part of the interruption, unless the programs
        // do not tell their steps.
        if (step_ == 0) {
            spend(event.at, state_);
        }
        state_ = planned_ ? JobState::planned : JobState::recovering;
        spend(event.at, state_);
    }
    if (event.kind == JobEvent::Kind::ending && !planned_ && state_ == JobState::planned) {
        spend(event.at, state_);
        state_ = JobState::recovering;
    }
}

void JobHistory::count(const JobEvent& event, const Incident& incident) {
    const auto word = static_cast<std::size_t>(cause_word(incident.cause));
    totals_.lost_steps += incident.lost_steps;
    ++(incident.planned ? totals_.planned : totals_.restarts)[word];
    if (incident.cut_short) {
        ++totals_.cut_short;
        return;
    }
    if (!incident.planned) {
        const auto durations = stages(incident);
        for (std::size_t i = 0; i < durations.size(); ++i) {
            totals_.recoveries[i].add(durations[i]);
        }
    }
    if (incident.lost_steps > 0 && !ended_) {
        spend(event.at, state_);
        state_ = JobState::lost;
        redone_at_ = incident.step + incident.lost_steps;
        step_ = incident.step;
    }
}

void JobHistory::reached(Instant at, std::uint64_t step) {
    if (step <= step_ || !began_ || ended_) {
        return;
    }
    step_ = step;
    last_step_at_ = at;
    if (state_ == JobState::lost) {
        spend(at, state_);
        state_ = step >= redone_at_ ? JobState::productive : state_;
    } else if (state_ == JobState::productive) {
        spend(at, state_);
    }
    steps_.add(at, step);
}

void StepSeries::add(Instant at, std::uint64_t step) {
    if (samples_.empty() || at - samples_.back().at >= sample_every_) {
        samples_.push_back({at, step});
    }
    if (samples_.size() > kSamplesMax) {
        std::size_t kept = 0;
        for (std::size_t i = 0; i < samples_.size(); i += 2) {
            samples_[kept++] = samples_[i];
        }
        samples_.resize(kept);
        sample_every_ *= 2;
    }
    if (recent_.empty() || at - recent_.back().at >= kRecentEvery) {
        recent_.push_back({at, step});
    }
    if (recent_.size() > kRecentMax) {
        recent_.pop_front();
    }
}

Duration StepSeries::longest_gap(std::size_t first) const {
    Duration longest{};
    for (std::size_t i = first + 1; i < recent_.size(); ++i) {
        longest = std::max(longest, recent_[i].at - recent_[i - 1].at);
    }
    return longest;
}

double StepSeries::rate(Instant now, Duration window) const {
    if (recent_.size() < 2) {
        return 0;
    }
    const auto begin = std::find_if(recent_.begin(), recent_.end(), [&](const StepSample& sample) {
        return now - sample.at <= window;
    });
    const std::size_t first =
        std::min(static_cast<std::size_t>(begin - recent_.begin()), recent_.size() - 2);
    const StepSample& last = recent_.back();
    const Duration gap = longest_gap(first);
    if (now - last.at > std::max(window, kLateFactor * gap)) {
        return 0;
    }
    // Until the next step is late, it is not known to be slower than those before.
    const Instant until = std::max(last.at, now - gap);
    const double seconds = to_seconds(until - recent_[first].at);
    return seconds > 0 && last.step > recent_[first].step
               ? static_cast<double>(last.step - recent_[first].step) / seconds
               : 0;
}

bool StepSeries::is_late(Duration silent, Duration patience) const {
    return silent > std::max(patience, kLateFactor * longest_gap(0));
}

std::optional<Duration> JobHistory::stalled_for(Instant now, Duration patience) const {
    const bool trains = state_ == JobState::productive || state_ == JobState::lost;
    if (!trains || ended_ || !last_step_at_) {
        return std::nullopt;
    }
    const Duration silent = now - std::max(*last_step_at_, trains_since_);
    return steps_.is_late(silent, patience) ? std::optional(silent) : std::nullopt;
}

JobTotals JobHistory::totals(Instant now) const {
    JobTotals totals = totals_;
    // It is not known yet whether the time since the last step leads to another one. If it does
    // not, it is part of the next interruption.
    const bool trains = state_ == JobState::productive || state_ == JobState::lost;
    const bool counts = !trains || step_ == 0;
    if (began_ && !ended_ && counts && now > settled_) {
        totals.time[static_cast<std::size_t>(state_)] += now - settled_;
        told_until_ = std::max(told_until_, now);
    }
    return totals;
}

}  // namespace regroup::rendezvous
