// SPDX-License-Identifier: Apache-2.0
//
// Requests of operators.
#include <algorithm>
#include <optional>
#include <utility>

#include "rendezvous/core/message_bytes.h"
#include "rendezvous/protocol/codec.h"
#include "rendezvous/server/job_table.h"
#include "rendezvous/text/describe.h"
#include "rendezvous/view/job_view.h"

namespace regroup::rendezvous {

namespace {

std::string names_of(const std::map<std::string, Job>& jobs) {
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
// "Now" for the rate of steps.
constexpr Duration kRateWindow = std::chrono::seconds(10);
// A job without a step for less than this does not stand still. Reports come less often than steps.
constexpr Duration kStallPatience = std::chrono::seconds(10);
/// The longest silence of a connection whose operator waits.
constexpr Duration kWaitLimit = std::chrono::hours(24);
/// For an operator who follows the status on one connection: the shortest pause between two
/// requests, and the longest.
constexpr Duration kStatusPause = std::chrono::milliseconds(100);
constexpr Duration kLogPause = std::chrono::milliseconds(10);
constexpr Duration kFollowerLimit = std::chrono::minutes(5);

constexpr std::size_t kStatusBytes = std::size_t{1} << 20U;

/// The messages that carry `text` to an operator.
std::function<std::optional<FromDaemon>()> parts_of(SharedTexts::Text text) {
    return [text = std::move(text), at = std::size_t{0}]() mutable -> std::optional<FromDaemon> {
        if (at >= text->size()) {
            return std::nullopt;
        }
        std::size_t end = std::min(text->size(), at + protocol::kStatusBytesMax);
        const auto is_inside_of_a_character = [&text](std::size_t place) {
            return (static_cast<unsigned char>((*text)[place]) & 0xC0U) == 0x80U;
        };
        while (end < text->size() && end > at + 1 && is_inside_of_a_character(end)) {
            --end;
        }
        Operated part{true, text->substr(at, end - at), end < text->size()};
        at = end;
        return part;
    };
}

/// A token for one job does not show the names of others.
std::string no_such(const std::string& job, bool sees_all, const std::map<std::string, Job>& jobs) {
    return "there is no job " + job +
           (sees_all ? "; the daemon has " + (jobs.empty() ? "none" : names_of(jobs)) : "");
}

}  // namespace

void JobTable::answer(const std::shared_ptr<Session>& session, bool done, std::string text) {
    hooks_.send(session, Operated{done, std::move(text)});
    session->close_when_flushed = true;
}

void JobTable::operate(const std::shared_ptr<Session>& session, const Operate& operate) {
    const bool sees_all = session->proven && session->proven->scope.job.empty();
    const Answered answered = [this, session](bool done, std::string text) {
        answer(session, done, std::move(text));
    };
    if (operate.action == Operate::Action::status &&
        (operate.job.empty() || jobs_.contains(operate.job))) {
        if (!operate.follow || may_ask_again(*session, kStatusPause)) {
            show_status(session, operate);
        } else {
            hooks_.refuse(session, Errc::overloaded,
                          "the status may be asked for again " + format_duration(kStatusPause) +
                              " after the last answer, and when that has been read");
        }
        return;
    }
    if (operate.action == Operate::Action::events) {
        if (const Job* job = job_named(operate, sees_all, answered)) {
            show_events(session, *job, operate);
        }
        return;
    }
    if (operate.action == Operate::Action::logs) {
        if (const Job* job = job_named(operate, sees_all, answered)) {
            read_log(session, *job, operate);
        }
        return;
    }
    if (Job* job = job_for(operate, sees_all, answered)) {
        act(*job, operate, answered, operate.wait ? session : nullptr);
    }
}

void JobTable::show_status(const std::shared_ptr<Session>& session, const Operate& operate) {
    // Slow readers hold large texts. Then others get what fits one message.
    const bool is_whole = operate.parts && statuses_.bytes_held() < limits_.statuses_bytes_max;
    const auto render = [&] {
        return jobs_json(views(operate.job), is_whole ? kStatusBytes : protocol::kStatusBytesMax);
    };
    const std::string key = (is_whole ? "" : "short\n") + operate.job;
    // A person who asks once, after doing something, wants to see it.
    SharedTexts::Text text =
        operate.follow ? statuses_.get(key, render) : statuses_.renew(key, render);
    if (is_whole) {
        hooks_.send_parts(session, parts_of(std::move(text)));
    } else {
        hooks_.send(session, Operated{true, *text});
    }
    session->close_when_flushed = session->close_when_flushed || !operate.follow;
}

SharedTexts::Text JobTable::status_text(const std::string& job_id) {
    return statuses_.get(job_id, [&] { return jobs_json(views(job_id), kStatusBytes); });
}

bool JobTable::may_ask_again(Session& session, Duration pause) const {
    const Instant now = clock_.now();
    if (now < session.status_due || session.has_queue()) {
        return false;
    }
    session.status_due = after(now, pause);
    session.silence_limit = kFollowerLimit;
    return true;
}

void JobTable::operate(const Operate& operate, bool sees_all, const Answered& answered) {
    if (standing() != Standing::leads) {
        answered(false, leader_.empty() ? "this daemon does not lead now; try again later"
                                        : "another daemon leads: " + leader_);
        return;
    }
    if (Job* job = job_for(operate, sees_all, answered)) {
        act(*job, operate, answered, nullptr);
    }
}

Job* JobTable::job_named(const Operate& operate, bool sees_all, const Answered& answered) {
    if (!operate.job.empty() && !jobs_.contains(operate.job)) {
        answered(false, no_such(operate.job, sees_all, jobs_));
        return nullptr;
    }
    if (jobs_.empty()) {
        answered(false, "this daemon has no job");
        return nullptr;
    }
    if (operate.job.empty() && jobs_.size() > 1) {
        answered(false, "there are " + std::to_string(jobs_.size()) + " jobs: " + names_of(jobs_) +
                            "; name one with --job");
        return nullptr;
    }
    return &(operate.job.empty() ? jobs_.begin() : jobs_.find(operate.job))->second;
}

Job* JobTable::job_for(const Operate& operate, bool sees_all, const Answered& answered) {
    Job* const found = job_named(operate, sees_all, answered);
    if (found == nullptr) {
        return nullptr;
    }
    Job& job = *found;
    if (job.core.phase() == Phase::closed) {
        answered(false, "job " + job.key.id +
                            " has ended already: " + describe(job.core.verdict()->reason));
        return nullptr;
    }
    if (journal_ && !job.may_grow_for_newcomer(bytes_of(operate), clock_.now())) {
        answered(false, "job " + job.key.id + " gets too many requests; try again later");
        return nullptr;
    }
    return &job;
}

void JobTable::act(Job& job, const Operate& operate, const Answered& answered,
                   const std::shared_ptr<Session>& waiting) {
    if (operate.action == Operate::Action::drain) {
        drain(job, operate, answered, waiting);
    } else if (operate.action == Operate::Action::release) {
        release(job, operate, answered);
    } else {
        stop(job, operate, answered);
    }
}

std::vector<JobView> JobTable::views(const std::string& job_id) const {
    std::vector<JobView> views;
    for (const auto& [id, job] : jobs_) {
        if (!job_id.empty() && id != job_id) {
            continue;
        }
        JobView& view = views.emplace_back();
        view.job = id;
        view.began_ms = job.key.began_ms;
        view.now_ms = wall_ms();
        view.now = job.timeline(clock_.now());
        view.status = job.core.status(view.now);
        view.journal = journal_ ? journal_->trouble(job.key) : "";
        view.state = job.history.state();
        view.totals = job.history.totals(view.now);
        view.step_rate = job.history.step_rate(view.now, kRateWindow);
        view.samples = job.history.samples();
        view.last_failure = job.history.last_failure();
        view.last_failure_ms = job.history.last_failure_ms();
        view.last_recovery_ms = job.history.last_recovery_ms();
        if (const std::optional<Instant> at = job.history.last_step_at()) {
            const Duration since = view.now - *at;
            view.last_step = since;
            view.stalled = job.history.stalled_for(
                view.now, std::max(kStallPatience, job.core.policy().heartbeat_timeout));
            view.last_step_ms =
                view.now_ms - std::chrono::duration_cast<std::chrono::milliseconds>(since).count();
        }
        view.last_event = job.history.last_number();
        view.telemetry = job.telemetry;
    }
    return views;
}

void JobTable::show_events(const std::shared_ptr<Session>& session, const Job& job,
                           const Operate& operate) {
    if (!followers_.make_room(session)) {
        answer(session, false,
               std::to_string(EventFollowers::kMax) +
                   " connections follow events already; try again later");
        return;
    }
    session->silence_limit = kWaitLimit;
    session->expires = after(clock_.now(), kWaitLimit);
    followers_.add(session, job.key.id, operate);
}

EventFollowers::Source JobTable::events_of(const std::string& job_id) const {
    const auto found = jobs_.find(job_id);
    if (found == jobs_.end()) {
        return {};
    }
    const Job& job = found->second;
    const std::deque<RecordedEvent>& events = job.history.events();
    return {&job.history, job.key.began_ms,
            !events.empty() && events.back().event.kind == JobEvent::Kind::closed};
}

const JobHistory* JobTable::history(const std::string& job_id) const {
    const auto found = jobs_.find(job_id);
    return found == jobs_.end() ? nullptr : &found->second.history;
}

const JobTelemetry* JobTable::telemetry(const std::string& job_id) const {
    const auto found = jobs_.find(job_id);
    return found == jobs_.end() ? nullptr : &found->second.telemetry;
}

void JobTable::drain(Job& job, const Operate& operate, const Answered& answered,
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
        waiting->silence_limit = kWaitLimit;
        waiting->expires = after(clock_.now(), kWaitLimit);
        job.drain_waits.add(waiting, operate.node,
                            job.core.status(job.timeline(clock_.now())).nodes);
    }
    step(job, DrainRequested{operate.node, operate.author, operate.reason},
         [this, answered, waiting, text, &job] {
             if (!waiting) {
                 answered(true, text);
                 return;
             }
             hooks_.send(waiting, Operated{true, text});
             job.drain_waits.accept(waiting);
             answer_waiting(job);
         });
}

void JobTable::end_waits() {
    followers_.flush();
    for (auto& [id, job] : jobs_) {
        for (DrainWaits::Answer& waiting : job.drain_waits.take_all(id)) {
            answer(waiting.session, waiting.done, std::move(waiting.text));
        }
    }
}

void JobTable::answer_waiting(Job& job) {
    for (DrainWaits::Answer& waiting : job.drain_waits.take_answered(job.key.id, job.core)) {
        answer(waiting.session, waiting.done, std::move(waiting.text));
    }
}

void JobTable::read_log(const std::shared_ptr<Session>& session, const Job& job,
                        const Operate& operate) {
    const std::uint32_t rank = operate.log.rank;
    if (!may_ask_again(*session, kLogPause)) {
        hooks_.refuse(session, Errc::overloaded,
                      "the log may be asked for again " + format_duration(kLogPause) +
                          " after the last answer, and when that has been read");
        return;
    }
    if (const std::string why = log_requests_.objection(*session); !why.empty()) {
        answer(session, false, why);
        return;
    }
    if (job.core.phase() == Phase::closed) {
        hooks_.send(session, Operated{true, R"({"ended":true})"});
        return;
    }
    const std::optional<NodeId> node = job.core.node_with(rank);
    if (!node) {
        tell_log({session, LogRequests::note_json("job " + job.key.id + " has no rank " +
                                                  std::to_string(rank) + " now")});
        return;
    }
    const std::string name = job.core.name_of(*node);
    const auto found = job.sessions().find(*node);
    if (found == job.sessions().end()) {
        tell_log({session, LogRequests::note_json("node " + name + " is not connected")});
        return;
    }
    if (!found->second->reads_logs) {
        answer(session, false, "node " + name + " runs an older regroup, which shows no logs");
        return;
    }
    const std::uint64_t ticket = log_requests_.add(session, found->second, name, clock_.now());
    hooks_.send(found->second, ReadLog{ticket, operate.log});
}

void JobTable::tell_log(const LogRequests::Answer& given) {
    hooks_.send(given.reader, Operated{true, given.json});
}

void JobTable::release(Job& job, const Operate& operate, const Answered& answered) {
    if (!job.core.is_quarantined(operate.node)) {
        answered(false, "job " + job.key.id + " has no quarantined node " + operate.node +
                            "; regroup status lists those that it has");
        return;
    }
    const std::string text = "node " + operate.node + " of job " + job.key.id +
                             " is no longer quarantined; it may take part in the next round";
    step(job, ReleaseRequested{operate.node, operate.author, operate.reason},
         [answered, text] { answered(true, text); });
}

void JobTable::stop(Job& job, const Operate& operate, const Answered& answered) {
    const std::string text = "job " + job.key.id + " is stopped on all its nodes";
    step(job,
         StopRequested{operate.author, operate.reason.empty() ? "regroup stop" : operate.reason},
         [answered, text] { answered(true, text); });
}

}  // namespace regroup::rendezvous
