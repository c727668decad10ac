// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/base/clock.h"
#include "rendezvous/journal/journal.h"
#include "rendezvous/server/daemon.h"
#include "rendezvous/server/job.h"
#include "rendezvous/server/peer_log.h"

namespace regroup::rendezvous {

/// The jobs of a daemon. Steps their cores, sends the effects to the nodes, and keeps one timer at
/// the cores' next deadline. With a journal, a decision is sent only after its event is kept.
class JobRunner {
   public:
    using Jobs = std::map<std::string, Job>;
    using Then = std::function<void()>;

    /// All references outlive it. Its timer's handler may run, cancelled, after its end.
    JobRunner(boost::asio::io_context& io, const Clock& clock, PeerLog& peers_log, Daemon::Log log);

    [[nodiscard]] Jobs& jobs() noexcept { return jobs_; }
    [[nodiscard]] const Jobs& jobs() const noexcept { return jobs_; }
    /// Null if there is no such job.
    [[nodiscard]] const Job* find(const std::string& job_id) const;
    void erase(Jobs::iterator job);
    void replace(Job& old, Job next);
    void clear();

    /// `journal` outlives it.
    void use(journal::Journal& journal) noexcept { journal_ = &journal; }
    void add_sink(Daemon::EventSink sink) { sinks_.push_back(std::move(sink)); }
    /// Tells the sinks of a job that the journal has given.
    void tell_restored(const Job& job) const;

    /// Calls `then` when the event is kept and its effects are queued.
    void step(Job& job, const Event& event, Then then = nullptr);
    /// Keeps the timer up to date. Call after each change of a core besides step().
    void arm(Job& job);
    /// From now on no core is told the time.
    void stop_timer();
    /// Appends the reports that wait in Job::held_entries.
    void keep_deferred(Job& job);
    /// Limits the events that are kept of one job: each new job leaves less for the others.
    void limit_history(Job& job) const;

   private:
    /// The result of a step of a core.
    struct StepResult {
        Effects effects;
        std::vector<JobEvent> events;
        std::int64_t wall_ms = 0;
    };

    [[nodiscard]] static StepResult run(Job& job, const journal::Entry& entry);
    void advance(Job& job, Instant now);
    /// Appends `entry` to the journal, and then applies its outcome.
    void record(Job& job, journal::Entry entry, StepResult outcome, Then then);
    void apply(Job& job, const StepResult& outcome);
    void publish(Job& job, const StepResult& outcome);
    void send(Job& job, const Send& effect);
    void log_situation(Job& job);
    [[nodiscard]] journal::Entry entry_of(const Job& job, std::optional<Event> event) const;
    /// Call before the job is removed or replaced.
    void disarm(Job& job);
    void set_timer();
    void on_timer();

    const Clock& clock_;
    PeerLog& peers_log_;
    const Daemon::Log log_;
    journal::Journal* journal_ = nullptr;
    std::vector<Daemon::EventSink> sinks_;
    Jobs jobs_;
    std::set<std::pair<Instant, std::string>> deadlines_;  // Of each job that has one.
    Instant timer_at_ = Instant::max();
    bool stopped_ = false;
    boost::asio::steady_timer timer_;
    std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
};

}  // namespace regroup::rendezvous
