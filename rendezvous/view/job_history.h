// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/core/job_event.h"
#include "rendezvous/view/job_totals.h"

namespace regroup::rendezvous {

/// An event as it was recorded.
struct RecordedEvent {
    std::uint64_t number = 0;  ///< Counted within the job, from 1.
    std::int64_t wall_ms = 0;  ///< Wall-clock time of the daemon, since 1970.
    JobEvent event{};
    std::shared_ptr<const std::string> line;   ///< As JSON: see event_line.
    std::shared_ptr<const std::string> brief;  ///< The same without a list of nodes.
};

/// Wall-clock times are 0 before the first.
struct LastLoss {
    Boxed<WorkerFailure> failure{};  ///< The last failure of a worker; may be empty.
    std::int64_t failure_ms = 0;     ///< Its wall-clock time.
    std::int64_t recovery_ms = 0;    ///< Of the last recovery from a failure.
};

/// How far a job had come at an instant.
struct StepSample {
    Instant at{};
    std::uint64_t step = 0;
};

/// The steps of a job over time. Pure; bounded.
class StepSeries {
   public:
    /// When there are more samples, every second one is dropped.
    static constexpr std::size_t kSamplesMax = 512;

    void add(Instant at, std::uint64_t step);
    [[nodiscard]] const std::vector<StepSample>& samples() const noexcept { return samples_; }
    /// Steps per second over about the last `window`, or between the last two steps if these take
    /// longer. Falls from when the next step is late, to 0.
    [[nodiscard]] double rate(Instant now, Duration window) const;
    /// True if a step that takes so long is late: more than `patience`, and much more than before.
    [[nodiscard]] bool is_late(Duration silent, Duration patience) const;

   private:
    /// The longest time between two of the recent samples, from index `first` on; zero: one sample.
    [[nodiscard]] Duration longest_gap(std::size_t first) const;

    std::vector<StepSample> samples_;
    Duration sample_every_ = std::chrono::seconds(1);
    std::deque<StepSample> recent_;  ///< For the rate now.
};

/// The last events of a job, sums over all of them, and its steps over time. It is the same after
/// a restart of a daemon that keeps a journal. Pure; bounded; one owner.
class JobHistory {
   public:
    static constexpr std::size_t kEventsMax = 2048;

    explicit JobHistory(std::string job) : job_(std::move(job)) {}

    /// Records the events of one step of the job's core.
    void record(const std::vector<JobEvent>& events, std::int64_t wall_ms);
    /// A report of the job said that it has committed `step`. `at` is on the job's timeline.
    void reached(Instant at, std::uint64_t step);
    /// Keeps the newest events whose lines have at most `bytes_max` bytes together, at least one.
    void limit(std::size_t bytes_max);

    /// The kept events, the oldest first, with consecutive numbers.
    [[nodiscard]] const std::deque<RecordedEvent>& events() const noexcept { return events_; }
    /// The number of the last event; 0 before the first.
    [[nodiscard]] std::uint64_t last_number() const noexcept { return last_number_; }
    /// The sums up to `now`.
    [[nodiscard]] JobTotals totals(Instant now) const;
    [[nodiscard]] JobState state() const noexcept { return state_; }
    [[nodiscard]] const std::vector<StepSample>& samples() const noexcept {
        return steps_.samples();
    }
    /// See StepSeries::rate; 0 once the job has ended.
    [[nodiscard]] double step_rate(Instant now, Duration window) const {
        return ended_ ? 0 : steps_.rate(now, window);
    }
    /// How long no step has come in a job that trains and tells its steps: more than `patience`,
    /// and much more than it took before. Nothing otherwise.
    [[nodiscard]] std::optional<Duration> stalled_for(Instant now, Duration patience) const;
    [[nodiscard]] const LastLoss& last_loss() const noexcept { return last_loss_; }
    /// When the last step was committed, on the job's timeline; nothing before the first.
    [[nodiscard]] std::optional<Instant> last_step_at() const noexcept { return last_step_at_; }

   private:
    void count(const JobEvent& event);
    void count(const JobEvent& event, const Incident& incident);
    /// The time until `at` was spent in `state`.
    void spend(Instant at, JobState state);

    std::string job_;
    std::deque<RecordedEvent> events_;
    std::size_t bytes_ = 0;
    std::size_t bytes_max_ = std::size_t{1} << 20U;
    std::uint64_t last_number_ = 0;

    JobTotals totals_;
    JobState state_ = JobState::waiting;
    bool began_ = false;
    bool ended_ = false;
    bool planned_ = false;  ///< The round is to change without a failure.
    Instant settled_{};     ///< Until then all time is in `totals_.time`.
    /// Time until then was told as time of the present state. Events come later than they happen,
    /// when the journal has them, and must not take it back.
    mutable Instant told_until_{};
    std::uint64_t step_ = 0;
    std::uint64_t redone_at_ = 0;  ///< In JobState::lost: the step from which on work is new.

    StepSeries steps_;
    Instant trains_since_{};  ///< When the round began to train.
    LastLoss last_loss_;
    std::optional<Instant> last_step_at_;
};

}  // namespace regroup::rendezvous
