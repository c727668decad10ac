// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <boost/asio/io_context.hpp>

#include "rendezvous/base/clock.h"
#include "rendezvous/journal/journal.h"
#include "rendezvous/server/daemon.h"
#include "rendezvous/server/growth_bounds.h"
#include "rendezvous/server/job_journal.h"
#include "rendezvous/server/job_runner.h"
#include "rendezvous/server/job_views.h"
#include "rendezvous/server/operators.h"
#include "rendezvous/server/peer_log.h"
#include "rendezvous/server/session.h"

namespace regroup::rendezvous {

/// All jobs of a daemon: begins them, passes the messages of sessions to them, and forgets them.
class JobTable {
   public:
    /// All references outlive it. Its timer's handler may run, cancelled, after its end.
    JobTable(boost::asio::io_context& io, const Clock& clock, const DaemonLimits& limits,
             PeerLog& peers_log, const Daemon::Log& log);

    /// From now on the journal determines the jobs, and whether this daemon is the leader. At most
    /// once, before the first session. `log` gets the lines about the journal.
    void use(std::unique_ptr<journal::Journal> journal, Daemon::Log log) {
        journal_.use(std::move(journal), std::move(log));
    }
    void add_sink(Daemon::EventSink sink) { runner_.add_sink(std::move(sink)); }

    [[nodiscard]] const JobJournal& journal() const noexcept { return journal_; }
    [[nodiscard]] JobViews& views() noexcept { return views_; }
    [[nodiscard]] Operators& operators() noexcept { return operators_; }
    /// Null if there is no such job.
    [[nodiscard]] const Job* find(const std::string& job_id) const { return runner_.find(job_id); }

    void handle(const std::shared_ptr<Session>& session, FromAgent message);
    /// True for the join of a node that its job knows, with the node's secret.
    [[nodiscard]] bool has_place(const FromAgent& message) const;
    /// The session's connection has ended.
    void end(const std::shared_ptr<Session>& session);

    /// Forgets jobs that are no longer needed.
    void sweep();
    /// Closes every job, and accepts no new one.
    void stop(const std::string& author, const std::string& reason);
    /// This daemon is about to end, but its jobs continue.
    void resign(std::function<void()> done);
    /// Jobs that are not closed.
    [[nodiscard]] std::size_t open_jobs() const;

   private:
    using Jobs = JobRunner::Jobs;

    /// Of a session that has joined.
    void handle_node(const std::shared_ptr<Session>& session, FromAgent message);
    void join(const std::shared_ptr<Session>& session, Join join);
    /// The job goes on, or a new one of the same id has taken its place. False: the session has its
    /// answer.
    bool go_on(Job& job, Session& session, const Join& join);
    /// Null, and the session is refused, if there is no room for one more job.
    Job* begin(Session& session, const Join& join);
    void connect(Job& job, const std::shared_ptr<Session>& session, const Join& join);
    [[nodiscard]] bool is_over(const Job& job, const JobPolicy& policy) const;
    void forget(Jobs::iterator job);
    /// Makes room for one more job, of the peer at `address`. False if every job has to stay.
    bool make_room(const std::string& address);
    [[nodiscard]] bool speaks_for_node(const std::shared_ptr<Session>& session) const;
    /// Wall-clock time for the key of a new job: later than that of all others.
    [[nodiscard]] std::int64_t beginning_ms();

    const Clock& clock_;
    const DaemonLimits limits_;
    PeerLog& peers_log_;
    JobRunner runner_;
    JobJournal journal_;
    GrowthBounds bounds_;
    JobViews views_;
    Operators operators_;
    std::int64_t last_beginning_ms_ = 0;
};

}  // namespace regroup::rendezvous
