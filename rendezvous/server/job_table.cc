// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/job_table.h"

#include <algorithm>

#include "rendezvous/base/wall_clock.h"
#include "rendezvous/core/message_bytes.h"
#include "rendezvous/core/round_claim.h"

namespace regroup::rendezvous {

namespace {

std::string too_far(const Join& join, RoundId latest) {
    return "node " + join.offer.name + " reports round " +
           std::to_string(number(join.report.round)) +
           "; by this daemon's clock no job can be beyond round " + std::to_string(number(latest)) +
           ": compare the clocks of the daemon's host and of the node";
}

}  // namespace

JobTable::JobTable(boost::asio::io_context& io, const Clock& clock, const DaemonLimits& limits,
                   PeerLog& peers_log, const Daemon::Log& log)
    : clock_(clock),
      limits_(limits),
      peers_log_(peers_log),
      runner_(io, clock, peers_log, log),
      journal_(io.get_executor(), clock, limits_, runner_,
               [this](const std::shared_ptr<Session>& session, FromAgent message) {
                   handle(session, std::move(message));
               }),
      bounds_(clock, limits_, runner_, journal_),
      views_(clock, runner_, journal_),
      operators_({clock, runner_, journal_, peers_log}) {}

// False after the leave, and once a newer connection has taken over.
bool JobTable::speaks_for_node(const std::shared_ptr<Session>& session) const {
    const Job* const job = session->membership ? runner_.find(session->membership->job) : nullptr;
    if (job == nullptr) {
        return false;
    }
    const auto found = job->sessions().find(session->membership->node);
    return found != job->sessions().end() && found->second == session;
}

std::int64_t JobTable::beginning_ms() {
    return last_beginning_ms_ = std::max(wall_ms(), last_beginning_ms_ + 1);
}

bool JobTable::has_place(const FromAgent& message) const {
    const auto* const join = std::get_if<Join>(&message);
    const Job* const job = join == nullptr ? nullptr : runner_.find(join->job);
    return job != nullptr && job->core.knows(join->node) &&
           job->core.is_proven(join->node, join->offer);
}

void JobTable::handle(const std::shared_ptr<Session>& session, FromAgent message) {
    if (journal_.divert(session, message)) {
        return;
    }
    const std::optional<Membership>& member = session->membership;
    if (auto* hello = std::get_if<Join>(&message)) {
        if (member && (member->job != hello->job || member->node != hello->node)) {
            peers_log_.refuse(*session, Errc::invalid_argument,
                              "a connection belongs to one node of one job");
            return;
        }
        join(session, std::move(*hello));
    } else if (const auto* wish = std::get_if<Operate>(&message)) {
        if (member) {
            peers_log_.refuse(*session, Errc::invalid_argument,
                              "an operator needs a separate connection");
            return;
        }
        operators_.operate(session, *wish);
    } else if (!member) {
        peers_log_.refuse(*session, Errc::invalid_argument, "the first message must be a join");
    } else if (const auto* part = std::get_if<LogPart>(&message)) {
        operators_.take(*session, *part);
    } else if (speaks_for_node(session)) {  // Otherwise it only waits for its workers to end.
        handle_node(session, std::move(message));
    }
}

void JobTable::handle_node(const std::shared_ptr<Session>& session, FromAgent message) {
    Job& job = runner_.jobs().at(session->membership->job);
    const NodeId& node = session->membership->node;
    if (auto* said = std::get_if<Report>(&message)) {
        if (said->telemetry) {
            job.hear(node, said->report.round, std::move(*said->telemetry), clock_.now());
        }
        if (said->snapshots) {
            job.hear(node, said->report.round, *said->snapshots, clock_.now());
        }
        if (said->work) {
            for (const SlowRank& slow : job.hear(node, said->report.round, *said->work)) {
                runner_.step(job, SlowRankFound{said->report.round, slow});
            }
        }
        NodeReported event{node, std::move(said->report)};
        if (bounds_.admit(job, event)) {
            runner_.step(job, event);
        }
    } else if (auto* leave = std::get_if<Leave>(&message)) {
        // The connection stays until the agent closes it, but no longer belongs to a node.
        job.disconnect(node, clock_.now());
        runner_.step(job, NodeLeft{node, std::move(leave->reason), leave->killed});
    } else if (const auto* resumed = std::get_if<Resumed>(&message)) {
        if (bounds_.may_keep(job, node, 0)) {
            runner_.step(job, NodeResumed{node, *resumed});
        }
    }
}

void JobTable::join(const std::shared_ptr<Session>& session, Join join) {
    const auto found = runner_.jobs().find(join.job);
    Job* present = found == runner_.jobs().end() ? nullptr : &found->second;
    // Before anything else: such a peer must not learn anything about the job.
    if (present != nullptr && !present->core.is_proven(join.node, join.offer)) {
        peers_log_.refuse(*session, Errc::invalid_argument,
                          "the job has this node already, and its agent has another secret");
        return;
    }
    const RoundId known = present == nullptr ? RoundId::none : present->core.round();
    if (const RoundId latest = std::max(known, round_claim_max(wall_ms()));
        join.report.round > latest) {
        peers_log_.refuse(*session, Errc::overloaded, too_far(join, latest));
        return;
    }
    if (present == nullptr || !present->core.has_member(join.node)) {
        remove_details(join.report);
    }
    const std::size_t bytes = bytes_of(join);
    if (const std::string why = bounds_.excess(present, join, bytes); !why.empty()) {
        peers_log_.refuse(*session, Errc::overloaded, why);
        return;
    }
    if (present != nullptr && is_over(*present, join.policy)) {
        for (const auto& [node, other] : present->sessions()) {
            if (other != session) {
                other->close();
            }
        }
        forget(found);
        present = nullptr;
    }
    if (present != nullptr && !go_on(*present, *session, join)) {
        return;
    }
    Job* const job = present == nullptr ? begin(*session, join) : present;
    if (job == nullptr) {
        return;
    }
    connect(*job, session, join);
    journal_.compare(*job, join, known);
    if (!join.offer.address_is_explicit) {
        join.offer.address = session->peer.address;
    }
    const NodeJoined event{join.node, std::move(join.policy), std::move(join.offer),
                           std::move(join.report)};
    runner_.step(*job, event);
    bounds_.settle(*job, event.node, bytes);
    if (present == nullptr && job->core.nodes_count() == 0 && job->core.phase() != Phase::closed) {
        // The node was refused. A job begins with a node, in the journal too.
        runner_.erase(runner_.jobs().find(join.job));
    }
}

bool JobTable::go_on(Job& job, Session& session, const Join& join) {
    if (const Verdict* verdict = job.former_verdict(join, clock_.now())) {
        session.send_last(Closed{*verdict});
        return false;
    }
    if (journal_.role() == DaemonRole::ends || !job.is_done_without(join, clock_.now())) {
        return true;
    }
    peers_log_.say("begun anew", session.peer.address,
                   "job " + join.job + ": begun anew by node " + join.offer.name);
    std::vector<journal::Entry> entries;
    Job next = Job::following(job, join.policy, beginning_ms(), clock_.now(),
                              limits_.closed_retention, entries);
    journal_.begin_anew(job, next, std::move(entries));
    runner_.replace(job, std::move(next));
    return true;
}

Job* JobTable::begin(Session& session, const Join& join) {
    Jobs& jobs = runner_.jobs();
    if (journal_.role() == DaemonRole::ends) {
        peers_log_.refuse(session, Errc::overloaded, "the daemon is being stopped");
        return nullptr;
    }
    if (jobs.size() >= limits_.jobs_max && !make_room(session.peer.address)) {
        peers_log_.refuse(session, Errc::overloaded,
                          "the daemon has " + std::to_string(jobs.size()) + " jobs already");
        return nullptr;
    }
    return &jobs.emplace(join.job, Job({join.job, beginning_ms()}, join.policy, clock_.now()))
                .first->second;
}

void JobTable::connect(Job& job, const std::shared_ptr<Session>& session, const Join& join) {
    const Duration timeout = join.policy.heartbeat_timeout;
    session->membership = Membership{join.job, join.node, timeout, join.offer.reads_logs};
    session->allow_silence(std::max(limits_.hello_limit, timeout), clock_.now());
    const std::shared_ptr<Session> former = job.connect(join.node, session);
    if (former && former != session) {
        former->close();  // A newer connection replaces it, so its end does not concern the node.
    }
}

void JobTable::forget(Jobs::iterator job) {
    journal_.end(job->second);
    runner_.erase(job);
}

bool JobTable::make_room(const std::string& address) {
    Jobs& jobs = runner_.jobs();
    auto found = jobs.end();
    for (auto job = jobs.begin(); job != jobs.end(); ++job) {
        if (job->second.is_expendable() &&
            (found == jobs.end() ||
             job->second.deserted_since() < found->second.deserted_since())) {
            found = job;
        }
    }
    if (found == jobs.end()) {
        return false;
    }
    peers_log_.say("make room", address,
                   "job " + found->first +
                       ": forgotten to make room for another job; no node of it is connected, and "
                       "it has no round");
    forget(found);
    return true;
}

// True if a join with `policy` begins a new job of the same id. A closed job is remembered for a
// while. A job without nodes does not bind new nodes to its policy.
bool JobTable::is_over(const Job& job, const JobPolicy& policy) const {
    if (job.core.phase() == Phase::closed) {
        return clock_.now() >= after(job.idle_since, limits_.closed_retention);
    }
    return job.core.nodes_count() == 0 && job.core.policy() != policy;
}

void JobTable::end(const std::shared_ptr<Session>& session) {
    operators_.end(session);
    if (speaks_for_node(session)) {
        Job& job = runner_.jobs().at(session->membership->job);
        job.disconnect(session->membership->node, clock_.now());
        runner_.step(job, NodeDisconnected{session->membership->node});
    }
}

void JobTable::sweep() {
    const Instant now = clock_.now();
    operators_.sweep();
    for (auto next = runner_.jobs().begin(); next != runner_.jobs().end();) {
        const auto found = next++;
        Job& job = found->second;
        job.allowances.sweep(now);
        runner_.limit_history(job);
        journal_.sweep(job, now);
        const Duration limit =
            job.core.phase() == Phase::closed ? limits_.closed_retention : limits_.empty_limit;
        if (job.sessions().empty() && now >= after(job.idle_since, limit)) {
            forget(found);
        }
    }
}

void JobTable::stop(const std::string& author, const std::string& reason) {
    for (auto& [id, job] : runner_.jobs()) {
        runner_.step(job, StopRequested{author, reason});
    }
    journal_.stop();
    runner_.stop_timer();
}

void JobTable::resign(std::function<void()> done) {
    journal_.stop();
    runner_.stop_timer();
    journal_.resign(std::move(done));
}

std::size_t JobTable::open_jobs() const {
    return static_cast<std::size_t>(std::ranges::count_if(runner_.jobs(), [](const auto& entry) {
        return entry.second.core.phase() != Phase::closed;
    }));
}

}  // namespace regroup::rendezvous
