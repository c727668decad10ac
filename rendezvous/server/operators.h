// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "rendezvous/base/clock.h"
#include "rendezvous/server/job_journal.h"
#include "rendezvous/server/job_runner.h"
#include "rendezvous/server/log_requests.h"
#include "rendezvous/server/peer_log.h"
#include "rendezvous/server/session.h"

namespace regroup::rendezvous {

/// The requests of operators.
class Operators {
   public:
    /// Gets the answer to an action.
    using Answered = std::function<void(bool done, std::string text)>;

    /// All of it outlives it.
    struct Parts {
        const Clock& clock;
        JobRunner& runner;
        const JobJournal& journal;
        PeerLog& peers_log;
    };
    explicit Operators(const Parts& parts) : parts_(parts), runner_(parts.runner) {}

    /// Requires that this daemon leads.
    void operate(const std::shared_ptr<Session>& session, const Operate& operate);
    /// Does an action, and does not wait for the nodes to leave. `sees_all`: the answer may name
    /// other jobs. `answered` is called once, at once or when the journal has kept the action;
    /// never if this daemon ceases to lead before that.
    void operate(const Operate& operate, bool sees_all, const Answered& answered);
    /// A node has sent a part of a log.
    void take(const Session& node, const LogPart& part);

    /// The only job if `job_id` is empty. Errors: invalid_argument, a sentence that names other
    /// jobs only if the peer `sees_all`.
    [[nodiscard]] Result<Job*> job_named(const std::string& job_id, bool sees_all) const;
    /// The session's connection has ended.
    void end(const std::shared_ptr<Session>& session);
    /// To be called about once a second.
    void sweep();
    /// The daemon is about to end: answers all who wait.
    void end_waits();

   private:
    /// Has the node of a rank read a part of its output.
    void read_log(const std::shared_ptr<Session>& session, const Job& job, const Operate& operate);
    /// The job that an action is for; null once `answered` has been called instead.
    [[nodiscard]] Job* job_for(const Operate& operate, bool sees_all, const Answered& answered);
    /// `waiting`: the session that waits until the drained nodes have left; null: none does.
    void act(Job& job, const Operate& operate, const Answered& answered,
             const std::shared_ptr<Session>& waiting);
    void drain(Job& job, const Operate& operate, const Answered& answered,
               const std::shared_ptr<Session>& waiting);
    void release(Job& job, const Operate& operate, const Answered& answered);
    void stop(Job& job, const Operate& operate, const Answered& answered);

    const Parts parts_;
    JobRunner& runner_;
    std::set<std::string> waited_for_;  // The jobs in whose `drain_waits` operators may wait.
    LogRequests log_requests_;
};

}  // namespace regroup::rendezvous
