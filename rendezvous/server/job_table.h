// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/base/clock.h"
#include "rendezvous/journal/journal.h"
#include "rendezvous/server/daemon.h"
#include "rendezvous/server/job.h"
#include "rendezvous/server/session.h"

namespace regroup::rendezvous {

/// All jobs of a daemon: takes what sessions say to the cores, what the cores decide to the
/// sessions, and keeps one timer at the cores' next deadline. With a journal, nobody hears of a
/// decision before the event that it answers is kept.
class JobTable {
   public:
    struct Hooks {
        std::function<void(const std::shared_ptr<Session>&, const FromDaemon&)> send;
        /// Sends a refusal, and nothing after it.
        std::function<void(const std::shared_ptr<Session>&, Errc, const std::string& reason)>
            refuse;
        std::function<void(const std::string& line)> log;
    };

    /// `io` and `clock` outlive it. Its timer's handler may run, cancelled, after its end.
    JobTable(boost::asio::io_context& io, const Clock& clock, const DaemonLimits& limits,
             Hooks hooks);

    /// From now on the journal says which jobs there are, and whether this daemon decides. At most
    /// once, before the first session. `log` is for what concerns the journal; the hook if empty.
    void use(std::unique_ptr<journal::Journal> journal,
             std::function<void(const std::string&)> log);

    [[nodiscard]] bool has_journal() const noexcept { return journal_ != nullptr; }

    void handle(const std::shared_ptr<Session>& session, FromAgent message);
    /// The session's connection has ended.
    void end(const std::shared_ptr<Session>& session);

    /// Forgets jobs that nobody needs any more.
    void sweep();
    /// Closes every job for everyone, and accepts no new one.
    void stop(const std::string& author, const std::string& reason);
    /// This daemon is about to end, its jobs are not.
    void resign(std::function<void()> done);
    /// The daemon is about to end: nobody is left to wait for.
    void end_waits();
    /// Jobs that are not closed.
    [[nodiscard]] std::size_t open_jobs() const;

   private:
    using Then = std::function<void()>;

    // What a journal says (job_table_journal.cc).

    /// The jobs are stepped over again in slices, between which the daemon does its other duties.
    void lead(std::vector<journal::KeptJob> kept);
    void take_up();
    void adopt(Job job);
    void begin_leading();
    void follow(const std::string& endpoint);
    /// What nodes say meanwhile waits.
    void wait(const std::shared_ptr<Session>& session, FromAgent message);
    /// Reports that have decided nothing do not wait for long to be kept.
    void keep_deferred(Job& job);
    /// Ends what is kept of the job before this one, if that is of no use any more at `now`.
    void end_former(Job& job, Instant now);

    void join(const std::shared_ptr<Session>& session, Join join);
    [[nodiscard]] bool is_over(const Job& job, const JobPolicy& policy) const;
    void forget(std::map<std::string, Job>::iterator job);

    // What an operator asks for (job_operations.cc).
    void operate(const std::shared_ptr<Session>& session, const Operate& operate);
    void drain(const std::shared_ptr<Session>& session, Job& job, const Operate& operate);
    void stop(const std::shared_ptr<Session>& session, Job& job, const Operate& operate);
    [[nodiscard]] std::string status(const std::string& job_id) const;
    void answer(const std::shared_ptr<Session>& session, bool done, std::string text);
    /// The operators who wait for nodes that have left by now.
    void answer_waiting(Job& job);

    /// `then` is called when the event is kept and its effects are on their way.
    void step(Job& job, const Event& event, Then then = nullptr);
    void advance(Job& job, Instant now);
    /// Has the journal keep `entry`, which had `effects`, and then sends these.
    void record(Job& job, journal::Entry entry, Effects effects, Then then);
    void apply(Job& job, const Effects& effects);
    [[nodiscard]] journal::Entry entry_of(const Job& job, std::optional<Event> event) const;
    [[nodiscard]] bool speaks_for_node(const std::shared_ptr<Session>& session) const;
    void arm();
    /// Since 1970.
    [[nodiscard]] static std::int64_t wall_ms();

    const Clock& clock_;
    const DaemonLimits limits_;
    const Hooks hooks_;
    std::unique_ptr<journal::Journal> journal_;  // May be none.
    std::function<void(const std::string&)> journal_log_;
    std::map<std::string, Job> jobs_;
    struct TakingUp {
        std::deque<JobRestoration> rest;
        std::deque<std::pair<std::shared_ptr<Session>, FromAgent>> words;
    };
    std::shared_ptr<TakingUp> taking_up_;  // Until this daemon leads.
    bool leading_ = true;
    std::string leader_;  // Where another daemon leads, if that is known.
    bool closed_ = false;
    boost::asio::steady_timer timer_;
    std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
};

}  // namespace regroup::rendezvous
