// SPDX-License-Identifier: Apache-2.0
//
// How a daemon restores and releases jobs when its journal makes it the leader or a follower.
#include <algorithm>
#include <utility>

#include <boost/asio/post.hpp>

#include "rendezvous/core/message_bytes.h"
#include "rendezvous/server/job_table.h"
#include "rendezvous/text/describe.h"

namespace regroup::rendezvous {

namespace {

// The length of a slice of replay, which is short compared with leases and heartbeats.
constexpr Duration kSlice = std::chrono::milliseconds(10);
// The most messages that wait meanwhile, for each possible connection: a join, and heartbeats.
constexpr std::size_t kWordsPerSession = 8;

}  // namespace

void JobTable::use(std::unique_ptr<journal::Journal> journal,
                   std::function<void(const std::string&)> log) {
    journal_ = std::move(journal);
    journal_log_ = hooks_.log;
    if (log) {
        journal_log_ = std::move(log);
    }
    leading_ = false;
    journal_->start({[this](std::vector<journal::KeptJob> jobs) { lead(std::move(jobs)); },
                     [this](const std::string& endpoint) { follow(endpoint); }, journal_log_});
}

void JobTable::lead(std::vector<journal::KeptJob> kept) {
    taking_up_ = std::make_shared<TakingUp>();
    for (journal::KeptJob& job : kept) {
        taking_up_->rest.emplace_back(std::move(job));
    }
    take_up();
    if (taking_up_) {
        journal_log_("reading the journal");
    }
}

void JobTable::take_up() {
    const Instant began = clock_.now();
    std::deque<JobRestoration>& rest = taking_up_->rest;
    while (!rest.empty()) {
        const Result<bool> more = rest.front().read();
        if (!more) {
            const journal::JobKey key = rest.front().key();
            rest.pop_front();
            journal_log_("job " + key.id + " is begun anew: " + more.error().detail);
            journal_->end(key);
        } else if (!*more) {
            JobRestoration all = std::move(rest.front());
            rest.pop_front();
            adopt(std::move(all).finish(wall_ms(), clock_.now()));
        }
        if (clock_.now() - began >= kSlice) {
            boost::asio::post(timer_.get_executor(), [this, mine = std::weak_ptr(taking_up_)] {
                if (!mine.expired()) {  // Then this table still exists too.
                    take_up();
                }
            });
            return;
        }
    }
    begin_leading();
}

void JobTable::adopt(Job job) {
    if (job.core.phase() == Phase::closed &&
        clock_.now() >= after(job.idle_since, limits_.closed_retention)) {
        journal_->end(job.key);
        return;
    }
    if (hooks_.restored) {
        hooks_.restored(job.key.id, job.key.began_ms, job.history);
    }
    job.history.limit(history_bytes_max());
    const auto found = jobs_.find(job.key.id);
    if (found == jobs_.end()) {
        const std::string id = job.key.id;
        jobs_.emplace(id, std::move(job));
        return;
    }
    // Two jobs of one id: of the earlier one only the verdict counts.
    end_former(found->second, Instant::max());
    if (!job.remember_former(found->second, limits_.closed_retention)) {
        journal_->end(found->second.key);
    }
    found->second = std::move(job);
}

void JobTable::begin_leading() {
    leading_ = true;
    const auto words = std::exchange(taking_up_->words, {});
    taking_up_.reset();
    for (auto& [id, job] : jobs_) {
        if (job.core.phase() == Phase::closed) {
            arm(job);
            continue;  // No node has to come back, except to hear the verdict.
        }
        journal_log_("job " + id + ": taken up again from the journal, round " +
                     std::to_string(number(job.core.round())) + "; its nodes have " +
                     format_duration(job.core.absence_limit()) + " at most to come back");
        step(job, Restarted{});
        if (job.core.phase() == Phase::closed) {
            journal_log_("job " + id + ": over, since all nodes were leaving it (" +
                         describe(job.core.verdict()->reason) + "); the next join begins it anew");
        }
    }
    for (const auto& [session, message] : words) {
        if (session->stream.is_open() && !session->close_when_flushed) {
            handle(session, message);
        }
    }
}

void JobTable::wait(const std::shared_ptr<Session>& session, FromAgent message) {
    const std::size_t bytes = bytes_of(message);
    if (taking_up_->words.size() >= limits_.sessions_max * kWordsPerSession ||
        taking_up_->words_bytes + bytes > limits_.nodes_bytes_max) {
        session->close();  // The node reconnects.
        return;
    }
    taking_up_->words_bytes += bytes;
    session->silence_limit = std::max(session->silence_limit, limits_.hello_limit);
    taking_up_->words.emplace_back(session, std::move(message));
}

void JobTable::follow(const std::string& endpoint) {
    leading_ = false;
    leader_ = endpoint;
    if (taking_up_) {
        for (const auto& [session, message] : taking_up_->words) {
            session->close();
        }
        taking_up_.reset();
    }
    for (auto& [id, job] : jobs_) {
        job.drain_waits.hang_up();
        for (const auto& [node, session] : job.sessions()) {
            session->close();
        }
    }
    followers_.hang_up();
    jobs_.clear();
    deadlines_.clear();
    waited_for_.clear();
    set_timer();
}

void JobTable::keep_deferred(Job& job) {
    if (job.deferred_count() > 0) {
        journal_->append(job.key, job.take_deferred(), [] {});
    }
}

void JobTable::end_former(Job& job, Instant now) {
    if (const std::optional<journal::JobKey> former = job.take_outdated(now)) {
        journal_->end(*former);
    }
}

}  // namespace regroup::rendezvous
