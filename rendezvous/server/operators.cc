// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/operators.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "rendezvous/core/message_bytes.h"
#include "rendezvous/protocol/codec.h"
#include "rendezvous/text/describe.h"

namespace regroup::rendezvous {

namespace {

std::string names_of(const JobRunner::Jobs& jobs) {
    constexpr std::size_t kShownMax = 20;
    std::string names;
    std::size_t shown = 0;
    for (const auto& [id, job] : jobs) {
        if (++shown > kShownMax) {
            return names + " and " + std::to_string(jobs.size() - kShownMax) + " more";
        }
        names += (names.empty() ? "" : ", ") + id;
    }
    return names;
}

/// The most operators that wait for one job: for each, the daemon watches all nodes that leave.
constexpr std::size_t kWaitsMax = 64;
/// The longest silence of a connection whose operator waits.
constexpr Duration kWaitLimit = std::chrono::hours(24);
/// For an operator who follows a log on one connection: the shortest pause between two requests,
/// and the longest.
constexpr Duration kLogPause = std::chrono::milliseconds(10);
constexpr Duration kFollowerLimit = std::chrono::minutes(5);

/// A token for one job does not show the names of others.
std::string no_such(const std::string& job, bool sees_all, const JobRunner::Jobs& jobs) {
    return "there is no job " + job +
           (sees_all ? "; the daemon has " + (jobs.empty() ? "none" : names_of(jobs)) : "");
}

}  // namespace

void Operators::operate(const std::shared_ptr<Session>& session, const Operate& operate) {
    const bool sees_all = session->peer.sees_all_jobs();
    const Answered answered = [session](bool done, std::string text) {
        session->send_last(Operated{done, std::move(text)});
    };
    if (operate.action == Operate::Action::logs) {
        if (const Result<Job*> job = job_named(operate.job, sees_all)) {
            read_log(session, **job, operate);
        } else {
            answered(false, job.error().detail);
        }
        return;
    }
    if (Job* job = job_for(operate, sees_all, answered)) {
        act(*job, operate, answered, operate.wait ? session : nullptr);
    }
}

void Operators::operate(const Operate& operate, bool sees_all, const Answered& answered) {
    if (parts_.journal.role() != DaemonRole::leads) {
        const std::string& leader = parts_.journal.leader();
        answered(false, leader.empty() ? "this daemon does not lead now; try again later"
                                       : "another daemon leads: " + leader);
        return;
    }
    if (Job* job = job_for(operate, sees_all, answered)) {
        act(*job, operate, answered, nullptr);
    }
}

Result<Job*> Operators::job_named(const std::string& job_id, bool sees_all) const {
    JobRunner::Jobs& jobs = runner_.jobs();
    const auto found = job_id.empty() ? jobs.begin() : jobs.find(job_id);
    if (!job_id.empty() && found == jobs.end()) {
        return Failure(Errc::invalid_argument, no_such(job_id, sees_all, jobs));
    }
    if (jobs.empty()) {
        return Failure(Errc::invalid_argument, "this daemon has no job");
    }
    if (job_id.empty() && jobs.size() > 1) {
        return Failure(Errc::invalid_argument, "there are " + std::to_string(jobs.size()) +
                                                   " jobs: " + names_of(jobs) +
                                                   "; name one with --job");
    }
    return &found->second;
}

Job* Operators::job_for(const Operate& operate, bool sees_all, const Answered& answered) {
    const Result<Job*> found = job_named(operate.job, sees_all);
    if (!found) {
        answered(false, found.error().detail);
        return nullptr;
    }
    Job& job = **found;
    if (job.core.phase() == Phase::closed) {
        answered(false, "job " + job.key.id +
                            " has ended already: " + describe(job.core.verdict()->reason));
        return nullptr;
    }
    if (parts_.journal.is_used() &&
        !job.allowances.take_for_newcomer(bytes_of(operate), parts_.clock.now())) {
        answered(false, "job " + job.key.id + " gets too many requests; try again later");
        return nullptr;
    }
    return &job;
}

void Operators::act(Job& job, const Operate& operate, const Answered& answered,
                    const std::shared_ptr<Session>& waiting) {
    if (operate.action == Operate::Action::drain) {
        drain(job, operate, answered, waiting);
    } else if (operate.action == Operate::Action::release) {
        release(job, operate, answered);
    } else {
        stop(job, operate, answered);
    }
}

void Operators::drain(Job& job, const Operate& operate, const Answered& answered,
                      const std::shared_ptr<Session>& waiting) {
    const std::size_t count = job.core.nodes_called(operate.node);
    if (count == 0) {
        answered(false, "job " + job.key.id + " has no node " + operate.node +
                            "; regroup status lists those that it has");
        return;
    }
    // Several launchers on one host share a name unless each has its own --local-addr.
    const bool several = count > 1;
    const std::string who =
        (several ? "the " + std::to_string(count) + " nodes of the name " : "node ") +
        operate.node + " of job " + job.key.id;
    const std::string their = several ? "their" : "its";
    const std::string text = who + (several ? " leave at " : " leaves at ") + their +
                             " next step boundary, or at once if " + their +
                             " workers do not keep their processes";
    if (waiting && job.drain_waits.count() >= kWaitsMax) {
        answered(false, std::to_string(kWaitsMax) + " operators wait for nodes of job " +
                            job.key.id + " already; drain the node without --wait");
        return;
    }
    if (waiting) {
        waited_for_.insert(job.key.id);
        waiting->allow_silence(kWaitLimit, parts_.clock.now());
        job.drain_waits.add(waiting, operate.node,
                            job.core.status(job.timeline(parts_.clock.now())).nodes);
    }
    runner_.step(job, DrainRequested{operate.node, operate.author, operate.reason},
                 [answered, waiting, text, &job] {
                     if (!waiting) {
                         answered(true, text);
                         return;
                     }
                     waiting->send(Operated{true, text});
                     job.drain_waits.accept(waiting);
                     job.drain_waits.answer_gone(job.key.id, job.core);
                 });
}

void Operators::end_waits() {
    for (auto& [id, job] : runner_.jobs()) {
        job.drain_waits.answer_all(id);
    }
}

void Operators::end(const std::shared_ptr<Session>& session) {
    log_requests_.ended(session);
    for (const std::string& id : std::exchange(waited_for_, {})) {
        const auto job = runner_.jobs().find(id);
        if (job == runner_.jobs().end()) {
            continue;
        }
        job->second.drain_waits.ended(session);
        job->second.drain_waits.answer_gone(id, job->second.core);
        if (!job->second.drain_waits.empty()) {
            waited_for_.insert(id);
        }
    }
}

void Operators::sweep() {
    log_requests_.sweep(parts_.clock.now());
}

void Operators::read_log(const std::shared_ptr<Session>& session, const Job& job,
                         const Operate& operate) {
    const std::uint32_t rank = operate.log.rank;
    const Instant now = parts_.clock.now();
    if (now < session->next_request || session->has_queue()) {
        parts_.peers_log.refuse(*session, Errc::overloaded,
                                "the log may be asked for again " + format_duration(kLogPause) +
                                    " after the last answer, and when that has been read");
        return;
    }
    session->next_request = after(now, kLogPause);
    session->allow_silence(kFollowerLimit, now);
    if (const std::string why = log_requests_.objection(*session); !why.empty()) {
        session->send_last(Operated{false, why});
        return;
    }
    if (job.core.phase() == Phase::closed) {
        session->send(Operated{true, R"({"ended":true})"});
        return;
    }
    const std::optional<NodeId> node = job.core.node_with(rank);
    if (!node) {
        LogRequests::note(*session,
                          "job " + job.key.id + " has no rank " + std::to_string(rank) + " now");
        return;
    }
    const std::string name = job.core.name_of(*node);
    const auto found = job.sessions().find(*node);
    if (found == job.sessions().end()) {
        LogRequests::note(*session, "node " + name + " is not connected");
        return;
    }
    if (!found->second->membership->reads_logs) {
        session->send_last(
            Operated{false, "node " + name + " runs an older regroup, which shows no logs"});
        return;
    }
    const std::uint64_t ticket = log_requests_.add(session, found->second, name, now);
    found->second->send(ReadLog{ticket, operate.log});
}

void Operators::take(const Session& node, const LogPart& part) {
    log_requests_.take(node, part);
}

void Operators::release(Job& job, const Operate& operate, const Answered& answered) {
    if (!job.core.is_quarantined(operate.node)) {
        answered(false, "job " + job.key.id + " has no quarantined node " + operate.node +
                            "; regroup status lists those that it has");
        return;
    }
    const std::string text = "node " + operate.node + " of job " + job.key.id +
                             " is no longer quarantined; it may take part in the next round";
    runner_.step(job, ReleaseRequested{operate.node, operate.author, operate.reason},
                 [answered, text] { answered(true, text); });
}

void Operators::stop(Job& job, const Operate& operate, const Answered& answered) {
    const std::string text = "job " + job.key.id + " is stopped on all its nodes";
    runner_.step(
        job,
        StopRequested{operate.author, operate.reason.empty() ? "regroup stop" : operate.reason},
        [answered, text] { answered(true, text); });
}

}  // namespace regroup::rendezvous
