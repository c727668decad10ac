// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/job_runner.h"

#include <algorithm>
#include <utility>

#include "rendezvous/base/wall_clock.h"
#include "rendezvous/text/describe.h"

namespace regroup::rendezvous {

namespace {

// The most reports that wait to be kept: enough for the end or beginning of a large round.
constexpr std::size_t kDeferredMax = 4096;
// The events that are kept of one job, and of all jobs.
constexpr std::size_t kHistoryBytesMax = std::size_t{1} << 20U;
constexpr std::size_t kHistoriesBytesMax = std::size_t{128} << 20U;

}  // namespace

JobRunner::JobRunner(boost::asio::io_context& io, const Clock& clock, PeerLog& peers_log,
                     Daemon::Log log)
    : clock_(clock), peers_log_(peers_log), log_(std::move(log)), timer_(io) {}

const Job* JobRunner::find(const std::string& job_id) const {
    const auto found = jobs_.find(job_id);
    return found == jobs_.end() ? nullptr : &found->second;
}

void JobRunner::erase(Jobs::iterator job) {
    disarm(job->second);
    jobs_.erase(job);
}

void JobRunner::replace(Job& old, Job next) {
    disarm(old);
    old = std::move(next);
}

void JobRunner::clear() {
    jobs_.clear();
    deadlines_.clear();
    set_timer();
}

void JobRunner::tell_restored(const Job& job) const {
    for (const Daemon::EventSink& sink : sinks_) {
        if (sink.on_restored) {
            sink.on_restored(job.key.id, job.key.began_ms, job.history);
        }
    }
}

journal::Entry JobRunner::entry_of(const Job& job, std::optional<Event> event) const {
    return {job.timeline(clock_.now()), wall_ms(), std::move(event), {}};
}

void JobRunner::step(Job& job, const Event& event, Then then) {
    journal::Entry entry = entry_of(job, event);
    const bool says_nothing_new = journal_ != nullptr && job.core.is_routine(event);
    const auto before = std::pair(job.core.phase(), job.core.round());
    StepResult outcome = run(job, entry);
    const Effects& effects = outcome.effects;
    job.told(event);
    if (says_nothing_new) {
        job.held_entries.hold(std::get<NodeReported>(event).node, std::move(entry));
        apply(job, outcome);
    } else if (journal_ != nullptr && std::pair(job.core.phase(), job.core.round()) == before &&
               journal::is_only_noted(event, effects)) {
        // The node need not wait, but what happened is told in the order of the journal.
        StepResult told{{}, std::exchange(outcome.events, {}), outcome.wall_ms};
        apply(job, outcome);
        if (!told.events.empty()) {
            record(job, std::move(entry), std::move(told), nullptr);
        } else {
            job.held_entries.defer(std::move(entry));
            if (job.held_entries.deferred_count() >= kDeferredMax) {
                keep_deferred(job);
            }
        }
    } else if (journal_ != nullptr && !journal::is_refusal(event, effects)) {
        record(job, std::move(entry), std::move(outcome), std::move(then));
        then = nullptr;
    } else {
        apply(job, outcome);
    }
    if (then) {
        then();
    }
    arm(job);
}

void JobRunner::advance(Job& job, Instant now) {
    if (job.next_deadline() > now) {
        return;
    }
    journal::Entry entry = entry_of(job, std::nullopt);
    StepResult outcome = run(job, entry);
    if (journal_ != nullptr) {
        record(job, std::move(entry), std::move(outcome), nullptr);
    } else {
        apply(job, outcome);
    }
}

JobRunner::StepResult JobRunner::run(Job& job, const journal::Entry& entry) {
    StepResult outcome{journal::apply(job.core, entry), {}, entry.wall_ms};
    outcome.events = job.core.job_events();
    return outcome;
}

void JobRunner::record(Job& job, journal::Entry entry, StepResult outcome, Then then) {
    entry.assigned = journal::assignments_of(outcome.effects);
    journal_->append(job.key, job.held_entries.take_with(std::move(entry)),
                     [this, alive = std::weak_ptr(alive_), key = job.key,
                      outcome = std::move(outcome), then = std::move(then)] {
                         const auto found = alive.expired() ? jobs_.end() : jobs_.find(key.id);
                         if (alive.expired() || found == jobs_.end() || found->second.key != key) {
                             return;
                         }
                         apply(found->second, outcome);
                         if (then) {
                             then();
                         }
                     });
}

void JobRunner::limit_history(Job& job) const {
    job.history.limit(
        std::min(kHistoryBytesMax, kHistoriesBytesMax / std::max<std::size_t>(1, jobs_.size())));
}

void JobRunner::keep_deferred(Job& job) {
    if (journal_ != nullptr && job.held_entries.deferred_count() > 0) {
        journal_->append(job.key, job.held_entries.take(), [] {});
    }
}

void JobRunner::apply(Job& job, const StepResult& outcome) {
    if (!outcome.events.empty()) {
        publish(job, outcome);
    }
    for (const Send& effect : outcome.effects) {
        send(job, effect);
    }
    job.drain_waits.answer_gone(job.key.id, job.core);
    const bool idle = job.core.phase() == Phase::closed || job.core.nodes_count() == 0;
    job.idle_since = idle ? std::min(job.idle_since, clock_.now()) : Instant::max();
    log_situation(job);
}

void JobRunner::publish(Job& job, const StepResult& outcome) {
    const std::uint64_t before = job.history.last_number();
    job.history.record(outcome.events, outcome.wall_ms);
    limit_history(job);
    const std::deque<RecordedEvent>& events = job.history.events();
    const std::size_t count = std::min(events.size(), job.history.last_number() - before);
    for (std::size_t i = events.size() - count; i < events.size(); ++i) {
        for (const Daemon::EventSink& sink : sinks_) {
            sink.on_event(job.key.id, events[i]);
        }
    }
}

void JobRunner::send(Job& job, const Send& effect) {
    const auto found = job.sessions().find(effect.node);
    if (found == job.sessions().end()) {
        return;  // The node has no connection now; its next join gets the current order.
    }
    const std::shared_ptr<Session> session = found->second;
    if (const auto* refused = std::get_if<Refused>(&effect.message)) {
        job.disconnect(effect.node, clock_.now());
        peers_log_.refuse(*session, refused->code, describe(refused->reason));
    } else {
        session->send(effect.message);
    }
}

void JobRunner::log_situation(Job& job) {
    if (job.core.phase() != Phase::training && job.core.phase() != Phase::closed) {
        return;
    }
    std::string line = describe(job.core.situation(job.timeline(clock_.now())));
    if (line != job.last_log) {
        log_("job " + job.key.id + ": " + line);
        job.last_log = std::move(line);
    }
}

void JobRunner::arm(Job& job) {
    const Instant next = job.next_deadline();
    if (next != job.due_at) {
        disarm(job);
        if (next != Instant::max()) {
            deadlines_.emplace(next, job.key.id);
        }
        job.due_at = next;
    }
    set_timer();
}

void JobRunner::disarm(Job& job) {
    deadlines_.erase({std::exchange(job.due_at, Instant::max()), job.key.id});
}

void JobRunner::set_timer() {
    const Instant next =
        deadlines_.empty() || stopped_ ? Instant::max() : deadlines_.begin()->first;
    if (next == timer_at_) {
        return;
    }
    timer_at_ = next;
    if (next == Instant::max()) {
        timer_.cancel();
        return;
    }
    timer_.expires_at(next);
    timer_.async_wait(
        [this, alive = std::weak_ptr(alive_)](const boost::system::error_code& error) {
            if (!error && !alive.expired() && !stopped_) {
                on_timer();
            }
        });
}

void JobRunner::on_timer() {
    timer_at_ = Instant::max();
    const Instant now = clock_.now();
    std::vector<std::string> due;
    for (auto next = deadlines_.begin(); next != deadlines_.end() && next->first <= now; ++next) {
        due.push_back(next->second);
    }
    for (const std::string& id : due) {
        if (const auto job = jobs_.find(id); job != jobs_.end()) {
            advance(job->second, now);
            arm(job->second);
        }
    }
    set_timer();
}

void JobRunner::stop_timer() {
    stopped_ = true;
    set_timer();
}

}  // namespace regroup::rendezvous
