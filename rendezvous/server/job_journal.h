// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/any_io_executor.hpp>

#include "rendezvous/base/clock.h"
#include "rendezvous/journal/journal.h"
#include "rendezvous/server/daemon.h"
#include "rendezvous/server/job.h"
#include "rendezvous/server/job_runner.h"
#include "rendezvous/server/session.h"

namespace regroup::rendezvous {

/// Whether this daemon has the jobs.
enum class DaemonRole : std::uint8_t {
    leads,      ///< It has the jobs.
    restores,   ///< It reads the jobs from its journal.
    stands_by,  ///< Another daemon has the jobs.
    ends,
};

/// The journal of a daemon's jobs, if it has one. Restores the jobs when the journal makes this
/// daemon the leader, and gives them up when another daemon leads.
class JobJournal {
   public:
    /// Gets the messages that have waited until the jobs were restored.
    using Handle = std::function<void(const std::shared_ptr<Session>&, FromAgent)>;

    /// `clock` and `runner` outlive it.
    JobJournal(boost::asio::any_io_executor executor, const Clock& clock,
               const DaemonLimits& limits, JobRunner& runner, Handle handle);

    /// At most once, before the first session. `log` gets the lines about the journal.
    void use(std::unique_ptr<journal::Journal> journal, Daemon::Log log);
    [[nodiscard]] bool is_used() const noexcept { return journal_ != nullptr; }

    [[nodiscard]] DaemonRole role() const noexcept;
    /// The endpoint of the daemon that leads, if another one does and it is known.
    [[nodiscard]] const std::string& leader() const noexcept { return leader_; }
    /// True if it has taken the message: this daemon does not lead now, or not yet.
    bool divert(const std::shared_ptr<Session>& session, FromAgent& message);

    /// `next` begins with `entries` and follows `old`. Nodes may still ask for the verdict of
    /// `old`, also from the next daemon.
    void begin_anew(Job& old, const Job& next, std::vector<journal::Entry> entries);
    /// Ends the entries of the job.
    void end(Job& job);
    /// Call about once a second for each job.
    void sweep(Job& job, Instant now);
    /// Warns of a node that has been in a later round than the journal knows.
    void compare(Job& job, const Join& join, RoundId known);
    /// See journal::Journal::trouble.
    [[nodiscard]] std::string trouble(const journal::JobKey& key) const {
        return journal_ ? journal_->trouble(key) : "";
    }

    /// From now on `standing` is `ends`.
    void stop();
    /// Releases the jobs for another daemon, and calls `done`. Call after stop().
    void resign(std::function<void()> done);

   private:
    struct Restoring {
        std::deque<JobRestoration> rest;
        std::deque<std::pair<std::shared_ptr<Session>, FromAgent>> words;
        std::size_t words_bytes = 0;
    };

    /// Restores the jobs in slices, between which the daemon serves others.
    void lead(std::vector<journal::KeptJob> kept);
    void restore_some();
    void adopt(Job job);
    void begin_leading();
    void follow(const std::string& endpoint);
    /// Queues a message that arrives meanwhile.
    void wait(const std::shared_ptr<Session>& session, FromAgent message);
    /// Ends the journal of the previous job if it is no longer needed at `now`.
    void end_former(Job& job, Instant now);

    const boost::asio::any_io_executor executor_;
    const Clock& clock_;
    const DaemonLimits limits_;
    JobRunner& runner_;
    const Handle handle_;
    std::unique_ptr<journal::Journal> journal_;  // May be null.
    Daemon::Log log_;
    std::shared_ptr<Restoring> restoring_;  // Until this daemon leads.
    bool leading_ = true;
    bool ends_ = false;
    std::string leader_;
};

}  // namespace regroup::rendezvous
