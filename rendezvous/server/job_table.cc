// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/job_table.h"

#include <algorithm>
#include <utility>

#include "rendezvous/core/message_bytes.h"
#include "rendezvous/core/round_claim.h"
#include "rendezvous/text/describe.h"

namespace regroup::rendezvous {

namespace {

// The most reports that wait to be kept: enough for the end or beginning of a large round.
constexpr std::size_t kDeferredMax = 4096;
// The events that are kept of one job, and of all jobs.
constexpr std::size_t kHistoryBytesMax = std::size_t{1} << 20U;
constexpr std::size_t kHistoriesBytesMax = std::size_t{128} << 20U;
// The statuses that are kept for some hundred milliseconds.
constexpr std::size_t kStatusesKeptMax = std::size_t{16} << 20U;

std::string too_far(const Join& join, RoundId latest) {
    return "node " + join.offer.name + " reports round " +
           std::to_string(number(join.report.round)) +
           "; by this daemon's clock no job can be beyond round " + std::to_string(number(latest)) +
           ": compare the clocks of the daemon's host and of the node";
}

std::string cut_back(const Join& join, RoundId ended) {
    return "job " + join.job + ": node " + join.offer.name + " has been in round " +
           std::to_string(number(join.report.round)) + ", and the journal ended in round " +
           std::to_string(number(ended)) +
           ": it lacks its last records, or is an older copy; the next round is later than both";
}

}  // namespace

JobTable::JobTable(boost::asio::io_context& io, const Clock& clock, const DaemonLimits& limits,
                   Hooks hooks)
    : clock_(clock),
      limits_(limits),
      hooks_(std::move(hooks)),
      peers_log_([this](const std::string& line) { hooks_.log(line); }),
      followers_(io.get_executor(),
                 {[this](const std::string& job) { return events_of(job); }, hooks_.send}),
      statuses_(clock, kStatusesKeptMax),
      timer_(io) {}

// False before the join, after the leave or a refusal, and once a newer connection has taken over.
bool JobTable::speaks_for_node(const std::shared_ptr<Session>& session) const {
    const auto job = jobs_.find(session->job);
    if (job == jobs_.end()) {
        return false;
    }
    const auto found = job->second.sessions().find(session->node);
    return found != job->second.sessions().end() && found->second == session;
}

std::int64_t JobTable::wall_ms() {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
}

std::int64_t JobTable::beginning_ms() {
    return last_beginning_ms_ = std::max(wall_ms(), last_beginning_ms_ + 1);
}

void JobTable::handle(const std::shared_ptr<Session>& session, FromAgent message) {
    if (taking_up_) {
        wait(session, std::move(message));
        return;
    }
    if (!leading_) {
        hooks_.send(session, Elsewhere{leader_});
        session->close_when_flushed = true;
        return;
    }
    if (auto* hello = std::get_if<Join>(&message)) {
        if (!session->job.empty() && (session->job != hello->job || session->node != hello->node)) {
            hooks_.refuse(session, Errc::invalid_argument,
                          "a connection belongs to one node of one job");
            return;
        }
        join(session, std::move(*hello));
        return;
    }
    if (const auto* wish = std::get_if<Operate>(&message);
        wish != nullptr && session->job.empty()) {
        operate(session, *wish);
        return;
    }
    if (session->job.empty() || std::holds_alternative<Operate>(message)) {
        hooks_.refuse(session, Errc::invalid_argument,
                      session->job.empty() ? "the first message must be a join"
                                           : "an operator needs a separate connection");
        return;
    }
    if (const auto* part = std::get_if<LogPart>(&message)) {
        if (const auto answer = log_requests_.take(*session, *part)) {
            tell_log(*answer);
        }
        return;
    }
    if (!speaks_for_node(session)) {
        return;  // The node has left and only waits for its workers to end.
    }
    Job& job = jobs_.at(session->job);
    if (auto* said = std::get_if<Report>(&message)) {
        if (said->telemetry) {
            job.hear(session->node, said->report.round, std::move(*said->telemetry), clock_.now());
        }
        report(session, job, std::move(said->report));
    } else if (auto* leave = std::get_if<Leave>(&message)) {
        // The connection stays until the agent closes it, but no longer belongs to a node.
        job.disconnect(session->node, clock_.now());
        step(job, NodeLeft{session->node, std::move(leave->reason), leave->killed});
    } else if (const auto* resumed = std::get_if<Resumed>(&message)) {
        if (may_keep(job, session->node, 0)) {
            step(job, NodeResumed{session->node, *resumed});
        }
    }
}

void JobTable::join(const std::shared_ptr<Session>& session, Join join) {
    auto found = jobs_.find(join.job);
    // Before anything else: such a peer must not learn anything about the job.
    if (found != jobs_.end() && !found->second.core.is_proven(join.node, join.offer)) {
        hooks_.refuse(session, Errc::invalid_argument,
                      "the job has this node already, and its agent has another secret");
        return;
    }
    const RoundId known = found == jobs_.end() ? RoundId::none : found->second.core.round();
    if (const RoundId latest = std::max(known, round_claim_max(wall_ms()));
        join.report.round > latest) {
        hooks_.refuse(session, Errc::overloaded, too_far(join, latest));
        return;
    }
    if (found == jobs_.end() || !found->second.core.has_member(join.node)) {
        remove_details(join.report);
    }
    const std::size_t bytes = bytes_of(join);
    if (const std::string why =
            excess(found == jobs_.end() ? nullptr : &found->second, join, bytes);
        !why.empty()) {
        hooks_.refuse(session, Errc::overloaded, why);
        return;
    }
    if (found != jobs_.end() && is_over(found->second, join.policy)) {
        for (const auto& [node, other] : found->second.sessions()) {
            if (other != session) {
                other->close();
            }
        }
        forget(found);
        found = jobs_.end();
    }
    if (found != jobs_.end()) {
        if (const Verdict* verdict = found->second.former_verdict(join, clock_.now())) {
            hooks_.send(session, Closed{*verdict});
            session->close_when_flushed = true;
            return;
        }
        if (!closed_ && found->second.is_done_without(join, clock_.now())) {
            peers_log_.log("begun anew", session->address,
                           "job " + join.job + ": begun anew by node " + join.offer.name,
                           clock_.now());
            std::vector<journal::Entry> entries;
            Job next = Job::following(found->second, join.policy, beginning_ms(), clock_.now(),
                                      limits_.closed_retention, entries);
            if (journal_) {
                // Nodes may still ask for its verdict, also from the next daemon.
                if (!next.remembers_former()) {
                    journal_->end(found->second.key);
                }
                end_former(found->second, Instant::max());
                journal_->append(next.key, std::move(entries), [] {});
            }
            disarm(found->second);
            found->second = std::move(next);
        }
    }
    const bool is_new = found == jobs_.end();
    if (is_new) {
        if (closed_ || (jobs_.size() >= limits_.jobs_max && !make_room(session->address))) {
            hooks_.refuse(session, Errc::overloaded,
                          closed_
                              ? std::string("the daemon is being stopped")
                              : "the daemon has " + std::to_string(jobs_.size()) + " jobs already");
            return;
        }
        found = jobs_.emplace(join.job, Job({join.job, beginning_ms()}, join.policy, clock_.now()))
                    .first;
    }
    session->job = join.job;
    session->node = join.node;
    session->reads_logs = join.offer.reads_logs;
    session->silence_limit = std::max(limits_.hello_limit, join.policy.heartbeat_timeout);
    session->heartbeat_timeout = join.policy.heartbeat_timeout;
    const std::shared_ptr<Session> former = found->second.connect(join.node, session);
    if (former && former != session) {
        former->close();  // A newer connection replaces it, so its end does not concern the node.
    }
    if (std::optional<RoundId>& ended = found->second.journal_ended_in;
        ended && join.report.round > std::max(*ended, known)) {
        journal_log_(cut_back(join, *ended));
        ended.reset();
    }
    if (!join.offer.address_is_explicit) {
        join.offer.address = session->address;
    }
    const NodeJoined event{join.node, std::move(join.policy), std::move(join.offer),
                           std::move(join.report)};
    step(found->second, event);
    settle(found->second, event.node, bytes);
    if (is_new && found->second.core.nodes_count() == 0 &&
        found->second.core.phase() != Phase::closed) {
        // The node was refused. A job begins with a node, in the journal too.
        disarm(found->second);
        jobs_.erase(found);
    }
}

void JobTable::forget(std::map<std::string, Job>::iterator job) {
    if (journal_) {
        end_former(job->second, Instant::max());
        journal_->end(job->second.key);
    }
    disarm(job->second);
    const std::string id = job->first;
    jobs_.erase(job);
    followers_.note(id);
}

// True if a join with `policy` begins a new job of the same id. A closed job is remembered for a
// while. A job without nodes does not bind new nodes to its policy.
bool JobTable::is_over(const Job& job, const JobPolicy& policy) const {
    if (job.core.phase() == Phase::closed) {
        return clock_.now() >= after(job.idle_since, limits_.closed_retention);
    }
    return job.core.nodes_count() == 0 && job.core.policy() != policy;
}

journal::Entry JobTable::entry_of(const Job& job, std::optional<Event> event) const {
    return {job.timeline(clock_.now()), wall_ms(), std::move(event), {}};
}

void JobTable::step(Job& job, const Event& event, Then then) {
    journal::Entry entry = entry_of(job, event);
    const bool says_nothing_new = journal_ && job.core.is_routine(event);
    const auto before = std::pair(job.core.phase(), job.core.round());
    StepResult outcome = run(job, entry);
    const Effects& effects = outcome.effects;
    job.told(event);
    if (says_nothing_new) {
        job.hold(std::get<NodeReported>(event).node, std::move(entry));
        apply(job, outcome);
    } else if (journal_ && std::pair(job.core.phase(), job.core.round()) == before &&
               journal::is_only_noted(event, effects)) {
        // The node need not wait, but what happened is told in the order of the journal.
        StepResult told{{}, std::exchange(outcome.events, {}), outcome.wall_ms};
        apply(job, outcome);
        if (!told.events.empty()) {
            record(job, std::move(entry), std::move(told), nullptr);
        } else {
            job.defer(std::move(entry));
            if (job.deferred_count() >= kDeferredMax) {
                keep_deferred(job);
            }
        }
    } else if (journal_ && !journal::is_refusal(event, effects)) {
        record(job, std::move(entry), std::move(outcome), std::move(then));
        then = nullptr;
    } else {
        apply(job, outcome);
    }
    if (then) {
        then();
    }
    arm(job);
}

void JobTable::advance(Job& job, Instant now) {
    if (job.next_deadline() > now) {
        return;
    }
    journal::Entry entry = entry_of(job, std::nullopt);
    StepResult outcome = run(job, entry);
    if (journal_) {
        record(job, std::move(entry), std::move(outcome), nullptr);
    } else {
        apply(job, outcome);
    }
}

JobTable::StepResult JobTable::run(Job& job, const journal::Entry& entry) {
    StepResult outcome{journal::apply(job.core, entry), {}, entry.wall_ms};
    outcome.events = job.core.job_events();
    return outcome;
}

void JobTable::record(Job& job, journal::Entry entry, StepResult outcome, Then then) {
    entry.assigned = journal::assignments_of(outcome.effects);
    journal_->append(job.key, job.with_held(std::move(entry)),
                     [this, alive = std::weak_ptr(alive_), key = job.key,
                      outcome = std::move(outcome), then = std::move(then)] {
                         const auto found = alive.expired() ? jobs_.end() : jobs_.find(key.id);
                         if (alive.expired() || found == jobs_.end() || found->second.key != key) {
                             return;
                         }
                         apply(found->second, outcome);
                         if (then) {
                             then();
                         }
                     });
}

std::size_t JobTable::history_bytes_max() const {
    return std::min(kHistoryBytesMax, kHistoriesBytesMax / std::max<std::size_t>(1, jobs_.size()));
}

void JobTable::apply(Job& job, const StepResult& outcome) {
    if (!outcome.events.empty()) {
        const std::uint64_t before = job.history.last_number();
        job.history.record(outcome.events, outcome.wall_ms);
        job.history.limit(history_bytes_max());
        const std::deque<RecordedEvent>& events = job.history.events();
        const std::size_t count = std::min(events.size(), job.history.last_number() - before);
        for (std::size_t i = events.size() - count; hooks_.event && i < events.size(); ++i) {
            hooks_.event(job.key.id, events[i]);
        }
        followers_.note(job.key.id);
    }
    for (const Send& effect : outcome.effects) {
        const auto found = job.sessions().find(effect.node);
        if (found == job.sessions().end()) {
            continue;  // The node has no connection now; its next join gets the current order.
        }
        const std::shared_ptr<Session> session = found->second;
        if (const auto* refused = std::get_if<Refused>(&effect.message)) {
            job.disconnect(effect.node, clock_.now());
            hooks_.refuse(session, refused->code, describe(refused->reason));
        } else {
            hooks_.send(session, effect.message);
        }
    }
    answer_waiting(job);
    const Phase phase = job.core.phase();
    const bool idle = phase == Phase::closed || job.core.nodes_count() == 0;
    job.idle_since = idle ? std::min(job.idle_since, clock_.now()) : Instant::max();
    if (phase == Phase::training || phase == Phase::closed) {
        std::string line = describe(job.core.situation(job.timeline(clock_.now())));
        if (line != job.last_log) {
            hooks_.log("job " + job.key.id + ": " + line);
            job.last_log = std::move(line);
        }
    }
}

void JobTable::arm(Job& job) {
    const Instant next = job.next_deadline();
    if (next != job.due_at) {
        disarm(job);
        if (next != Instant::max()) {
            deadlines_.emplace(next, job.key.id);
        }
        job.due_at = next;
    }
    set_timer();
}

void JobTable::disarm(Job& job) {
    deadlines_.erase({std::exchange(job.due_at, Instant::max()), job.key.id});
}

void JobTable::set_timer() {
    const Instant next = deadlines_.empty() || closed_ ? Instant::max() : deadlines_.begin()->first;
    if (next == timer_at_) {
        return;
    }
    timer_at_ = next;
    if (next == Instant::max()) {
        timer_.cancel();
        return;
    }
    timer_.expires_at(next);
    timer_.async_wait(
        [this, alive = std::weak_ptr(alive_)](const boost::system::error_code& error) {
            if (!error && !alive.expired() && !closed_) {
                on_timer();
            }
        });
}

void JobTable::on_timer() {
    timer_at_ = Instant::max();
    const Instant now = clock_.now();
    std::vector<std::string> due;
    for (auto next = deadlines_.begin(); next != deadlines_.end() && next->first <= now; ++next) {
        due.push_back(next->second);
    }
    for (const std::string& id : due) {
        if (const auto job = jobs_.find(id); job != jobs_.end()) {
            advance(job->second, now);
            arm(job->second);
        }
    }
    set_timer();
}

void JobTable::end(const std::shared_ptr<Session>& session) {
    followers_.ended(session);
    for (const LogRequests::Answer& answer : log_requests_.ended(session)) {
        tell_log(answer);
    }
    for (const std::string& id : std::exchange(waited_for_, {})) {
        const auto job = jobs_.find(id);
        if (job == jobs_.end()) {
            continue;
        }
        job->second.drain_waits.ended(session);
        answer_waiting(job->second);
        if (!job->second.drain_waits.empty()) {
            waited_for_.insert(id);
        }
    }
    if (speaks_for_node(session)) {
        Job& job = jobs_.at(session->job);
        job.disconnect(session->node, clock_.now());
        step(job, NodeDisconnected{session->node});
    }
}

void JobTable::sweep() {
    const Instant now = clock_.now();
    peers_log_.sweep(now);
    followers_.sweep(now);
    for (const LogRequests::Answer& answer : log_requests_.take_overdue(now)) {
        tell_log(answer);
    }
    for (auto next = jobs_.begin(); next != jobs_.end();) {
        const auto found = next++;
        Job& job = found->second;
        job.forget_allowances(now);
        job.history.limit(history_bytes_max());  // Each new job leaves less for the others.
        if (journal_) {
            keep_deferred(job);
            end_former(job, now);
        }
        const Duration limit =
            job.core.phase() == Phase::closed ? limits_.closed_retention : limits_.empty_limit;
        if (job.sessions().empty() && now >= after(job.idle_since, limit)) {
            forget(found);
        }
    }
}

void JobTable::stop(const std::string& author, const std::string& reason) {
    for (auto& [id, job] : jobs_) {
        step(job, StopRequested{author, reason});
    }
    taking_up_.reset();
    closed_ = true;
    set_timer();
}

void JobTable::resign(std::function<void()> done) {
    taking_up_.reset();
    closed_ = true;
    set_timer();
    if (journal_) {
        for (auto& [id, job] : jobs_) {
            keep_deferred(job);
        }
        journal_->resign(std::move(done));
    } else {
        done();
    }
}

JobTable::Standing JobTable::standing() const noexcept {
    if (closed_) {
        return Standing::ends;
    }
    if (taking_up_) {
        return Standing::restores;
    }
    return leading_ ? Standing::leads : Standing::stands_by;
}

std::size_t JobTable::open_jobs() const {
    return static_cast<std::size_t>(std::count_if(
        jobs_.begin(), jobs_.end(),
        [](const auto& entry) { return entry.second.core.phase() != Phase::closed; }));
}

}  // namespace regroup::rendezvous
