// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/job_table.h"

#include <algorithm>
#include <utility>

namespace regroup::rendezvous {

JobTable::JobTable(boost::asio::io_context& io, const Clock& clock, const DaemonLimits& limits,
                   Hooks hooks)
    : clock_(clock), limits_(limits), hooks_(std::move(hooks)), timer_(io) {}

// False before the join, after the leave or a refusal, and once a newer connection has taken over.
bool JobTable::speaks_for_node(const std::shared_ptr<Session>& session) const {
    const auto job = jobs_.find(session->job);
    if (job == jobs_.end()) {
        return false;
    }
    const auto found = job->second.sessions.find(session->node);
    return found != job->second.sessions.end() && found->second == session;
}

void JobTable::handle(const std::shared_ptr<Session>& session, FromAgent message) {
    if (auto* hello = std::get_if<Join>(&message)) {
        if (!session->job.empty() && (session->job != hello->job || session->node != hello->node)) {
            hooks_.refuse(
                session, Errc::invalid_argument,
                "a connection belongs to one node of one job; it joined as " + session->node);
            return;
        }
        join(session, std::move(*hello));
        return;
    }
    if (session->job.empty()) {
        hooks_.refuse(session, Errc::invalid_argument, "the first message must be a join");
        return;
    }
    if (!speaks_for_node(session)) {
        return;  // It has left, and is only waiting for its workers to end.
    }
    if (auto* report = std::get_if<Report>(&message)) {
        step(session->job, NodeReported{session->node, std::move(report->report)});
    } else if (auto* leave = std::get_if<Leave>(&message)) {
        // The connection stays until the agent closes it, but is nobody's any more.
        jobs_.at(session->job).sessions.erase(session->node);
        step(session->job, NodeLeft{session->node, std::move(leave->reason)});
    }
}

void JobTable::join(const std::shared_ptr<Session>& session, Join join) {
    auto found = jobs_.find(join.job);
    if (found != jobs_.end() && is_over(found->second, join.policy)) {
        for (const auto& [node, other] : found->second.sessions) {
            if (other != session) {
                other->close();
            }
        }
        jobs_.erase(found);
        found = jobs_.end();
    }
    if (found != jobs_.end()) {
        if (const Verdict* verdict = found->second.former_verdict(join, clock_.now())) {
            hooks_.send(session, Closed{*verdict});
            session->close_when_flushed = true;
            return;
        }
        if (!closed_ && found->second.is_done_without(join)) {
            hooks_.log("job " + join.job + ": begun anew by node " + join.offer.name);
            found->second =
                Job::following(found->second, join.policy, clock_.now(), limits_.closed_retention);
        }
    }
    if (found == jobs_.end()) {
        if (closed_ || jobs_.size() >= limits_.jobs_max) {
            hooks_.refuse(session, Errc::overloaded,
                          closed_
                              ? std::string("the daemon is being stopped")
                              : "the daemon has " + std::to_string(jobs_.size()) + " jobs already");
            return;
        }
        found = jobs_.emplace(join.job, Job(join.policy)).first;
    }
    session->job = join.job;
    session->node = join.node;
    found->second.remember(join.node);
    session->silence_limit = std::max(limits_.hello_limit, join.policy.heartbeat_timeout);
    std::shared_ptr<Session>& slot = found->second.sessions[join.node];
    if (slot && slot != session) {
        slot->close();  // Superseded; its end is not the node's.
    }
    slot = session;
    if (!join.offer.address_is_explicit) {
        join.offer.address = session->address;
    }
    const NodeJoined event{join.node, std::move(join.policy), std::move(join.offer),
                           std::move(join.report)};
    step(session->job, event);
}

// Whether a join with `policy` begins a new job of the same id. One that has closed is remembered
// for a while; one that nobody is in any more binds nobody to its policy.
bool JobTable::is_over(const Job& job, const JobPolicy& policy) const {
    if (job.core.phase() == Phase::closed) {
        return clock_.now() >= after(job.idle_since, limits_.closed_retention);
    }
    return job.core.nodes_count() == 0 && job.core.policy() != policy;
}

void JobTable::step(const std::string& job_id, const Event& event) {
    if (const auto job = jobs_.find(job_id); job != jobs_.end()) {
        apply(job_id, job->second, job->second.core.step(clock_.now(), event));
    }
    arm();
}

void JobTable::apply(const std::string& job_id, Job& job, const Effects& effects) {
    for (const Send& effect : effects) {
        const auto found = job.sessions.find(effect.node);
        if (found == job.sessions.end()) {
            continue;  // Between two connections; its next join is answered with the truth.
        }
        const std::shared_ptr<Session> session = found->second;
        if (const auto* refused = std::get_if<Refused>(&effect.message)) {
            job.sessions.erase(found);
            hooks_.refuse(session, refused->code, refused->reason);
        } else {
            hooks_.send(session, effect.message);
        }
    }
    const Phase phase = job.core.phase();
    const bool idle = phase == Phase::closed || job.core.nodes_count() == 0;
    job.idle_since = idle ? std::min(job.idle_since, clock_.now()) : Instant::max();
    if (phase == Phase::running || phase == Phase::closed) {
        std::string line = job.core.explain(clock_.now());
        if (line != job.last_log) {
            hooks_.log("job " + job_id + ": " + line);
            job.last_log = std::move(line);
        }
    }
}

void JobTable::arm() {
    Instant next = Instant::max();
    for (const auto& [id, job] : jobs_) {
        next = std::min(next, job.core.next_deadline());
    }
    if (next == Instant::max() || closed_) {
        timer_.cancel();
        return;
    }
    timer_.expires_at(next);
    timer_.async_wait(
        [this, alive = std::weak_ptr(alive_)](const boost::system::error_code& error) {
            if (error || alive.expired() || closed_) {
                return;
            }
            const Instant now = clock_.now();
            for (auto& [id, job] : jobs_) {
                if (job.core.next_deadline() <= now) {
                    apply(id, job, job.core.advance(now));
                }
            }
            arm();
        });
}

void JobTable::end(const std::shared_ptr<Session>& session) {
    if (speaks_for_node(session)) {
        jobs_.at(session->job).sessions.erase(session->node);
        step(session->job, NodeDisconnected{session->node});
    }
}

void JobTable::sweep() {
    const Instant now = clock_.now();
    std::erase_if(jobs_, [&](const auto& entry) {
        const Job& job = entry.second;
        const Duration limit =
            job.core.phase() == Phase::closed ? limits_.closed_retention : limits_.empty_limit;
        return job.sessions.empty() && now >= after(job.idle_since, limit);
    });
}

void JobTable::stop(const std::string& author, const std::string& reason) {
    for (auto& [id, job] : jobs_) {
        const StopRequested event{author, reason};
        apply(id, job, job.core.step(clock_.now(), event));
    }
    closed_ = true;
    timer_.cancel();
}

}  // namespace regroup::rendezvous
