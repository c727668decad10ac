// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/job_journal.h"

#include <algorithm>

#include <boost/asio/post.hpp>

#include "rendezvous/base/wall_clock.h"
#include "rendezvous/core/message_bytes.h"
#include "rendezvous/text/describe.h"

namespace regroup::rendezvous {

namespace {

// The length of a slice of replay, which is short compared with leases and heartbeats.
constexpr Duration kSlice = std::chrono::milliseconds(10);
// The most messages that wait meanwhile, for each possible connection: a join, and heartbeats.
constexpr std::size_t kWordsPerSession = 8;

std::string cut_back(const Join& join, RoundId ended) {
    return "job " + join.job + ": node " + join.offer.name + " has been in round " +
           std::to_string(number(join.report.round)) + ", and the journal ended in round " +
           std::to_string(number(ended)) +
           ": it lacks its last records, or is an older copy; the next round is later than both";
}

}  // namespace

JobJournal::JobJournal(boost::asio::any_io_executor executor, const Clock& clock,
                       const DaemonLimits& limits, JobRunner& runner, Handle handle)
    : executor_(std::move(executor)),
      clock_(clock),
      limits_(limits),
      runner_(runner),
      handle_(std::move(handle)) {}

void JobJournal::use(std::unique_ptr<journal::Journal> journal, Daemon::Log log) {
    journal_ = std::move(journal);
    log_ = std::move(log);
    leading_ = false;
    runner_.use(*journal_);
    journal_->start({[this](std::vector<journal::KeptJob> jobs) { lead(std::move(jobs)); },
                     [this](const std::string& endpoint) { follow(endpoint); }, log_});
}

DaemonRole JobJournal::role() const noexcept {
    if (ends_) {
        return DaemonRole::ends;
    }
    if (restoring_) {
        return DaemonRole::restores;
    }
    return leading_ ? DaemonRole::leads : DaemonRole::stands_by;
}

bool JobJournal::divert(const std::shared_ptr<Session>& session, FromAgent& message) {
    if (restoring_) {
        wait(session, std::move(message));
        return true;
    }
    if (!leading_) {
        session->send_last(Elsewhere{leader_});
    }
    return !leading_;
}

void JobJournal::lead(std::vector<journal::KeptJob> kept) {
    restoring_ = std::make_shared<Restoring>();
    for (journal::KeptJob& job : kept) {
        restoring_->rest.emplace_back(std::move(job));
    }
    restore_some();
    if (restoring_) {
        log_("reading the journal");
    }
}

void JobJournal::restore_some() {
    const Instant began = clock_.now();
    std::deque<JobRestoration>& rest = restoring_->rest;
    while (!rest.empty()) {
        const Result<bool> more = rest.front().read();
        if (!more) {
            const journal::JobKey key = rest.front().key();
            rest.pop_front();
            log_("job " + key.id + " is begun anew: " + more.error().detail);
            journal_->end(key);
        } else if (!*more) {
            JobRestoration all = std::move(rest.front());
            rest.pop_front();
            adopt(std::move(all).finish(wall_ms(), clock_.now()));
        }
        if (clock_.now() - began >= kSlice) {
            boost::asio::post(executor_, [this, mine = std::weak_ptr(restoring_)] {
                if (!mine.expired()) {  // Then this object still exists too.
                    restore_some();
                }
            });
            return;
        }
    }
    begin_leading();
}

void JobJournal::adopt(Job job) {
    if (job.core.phase() == Phase::closed &&
        clock_.now() >= after(job.idle_since, limits_.closed_retention)) {
        journal_->end(job.key);
        return;
    }
    runner_.tell_restored(job);
    runner_.limit_history(job);
    const auto found = runner_.jobs().find(job.key.id);
    if (found == runner_.jobs().end()) {
        const std::string id = job.key.id;
        runner_.jobs().emplace(id, std::move(job));
        return;
    }
    // Two jobs of one id: of the earlier one only the verdict counts.
    end_former(found->second, Instant::max());
    if (!job.remember_former(found->second, limits_.closed_retention)) {
        journal_->end(found->second.key);
    }
    found->second = std::move(job);
}

void JobJournal::begin_leading() {
    leading_ = true;
    const auto words = std::exchange(restoring_->words, {});
    restoring_.reset();
    for (auto& [id, job] : runner_.jobs()) {
        if (job.core.phase() == Phase::closed) {
            runner_.arm(job);
            continue;  // No node has to come back, except to hear the verdict.
        }
        log_("job " + id + ": taken up again from the journal, round " +
             std::to_string(number(job.core.round())) + "; its nodes have " +
             format_duration(job.core.absence_limit()) + " at most to come back");
        runner_.step(job, Restarted{});
        if (job.core.phase() == Phase::closed) {
            log_("job " + id + ": over, since all nodes were leaving it (" +
                 describe(job.core.verdict()->reason) + "); the next join begins it anew");
        }
    }
    for (const auto& [session, message] : words) {
        if (session->is_open()) {
            handle_(session, message);
        }
    }
}

void JobJournal::wait(const std::shared_ptr<Session>& session, FromAgent message) {
    const std::size_t bytes = bytes_of(message);
    if (restoring_->words.size() >= limits_.sessions_max * kWordsPerSession ||
        restoring_->words_bytes + bytes > limits_.nodes_bytes_max) {
        session->close();  // The node reconnects.
        return;
    }
    restoring_->words_bytes += bytes;
    session->allow_silence(std::max(session->silence_limit(), limits_.hello_limit), clock_.now());
    restoring_->words.emplace_back(session, std::move(message));
}

void JobJournal::follow(const std::string& endpoint) {
    leading_ = false;
    leader_ = endpoint;
    if (const auto restoring = std::exchange(restoring_, nullptr)) {
        for (const auto& [session, message] : restoring->words) {
            session->close();
        }
    }
    for (auto& [id, job] : runner_.jobs()) {
        job.drain_waits.hang_up();
        for (const auto& [node, session] : job.sessions()) {
            session->close();
        }
    }
    runner_.clear();
}

void JobJournal::begin_anew(Job& old, const Job& next, std::vector<journal::Entry> entries) {
    if (!journal_) {
        return;
    }
    if (!next.remembers_former()) {
        journal_->end(old.key);
    }
    end_former(old, Instant::max());
    journal_->append(next.key, std::move(entries), [] {});
}

void JobJournal::end(Job& job) {
    if (journal_) {
        end_former(job, Instant::max());
        journal_->end(job.key);
    }
}

void JobJournal::sweep(Job& job, Instant now) {
    if (journal_) {
        runner_.keep_deferred(job);
        end_former(job, now);
    }
}

void JobJournal::compare(Job& job, const Join& join, RoundId known) {
    std::optional<RoundId>& ended = job.journal_ended_in;
    if (ended && join.report.round > std::max(*ended, known)) {
        log_(cut_back(join, *ended));
        ended.reset();
    }
}

void JobJournal::end_former(Job& job, Instant now) {
    if (const std::optional<journal::JobKey> former = job.take_outdated(now)) {
        journal_->end(*former);
    }
}

void JobJournal::stop() {
    restoring_.reset();
    ends_ = true;
}

void JobJournal::resign(std::function<void()> done) {
    if (!journal_) {
        done();
        return;
    }
    for (auto& [id, job] : runner_.jobs()) {
        runner_.keep_deferred(job);
    }
    journal_->resign(std::move(done));
}

}  // namespace regroup::rendezvous
