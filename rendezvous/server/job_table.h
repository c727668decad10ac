// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/base/clock.h"
#include "rendezvous/journal/journal.h"
#include "rendezvous/server/daemon.h"
#include "rendezvous/server/event_followers.h"
#include "rendezvous/server/job.h"
#include "rendezvous/server/log_limiter.h"
#include "rendezvous/server/log_requests.h"
#include "rendezvous/server/session.h"
#include "rendezvous/server/shared_texts.h"
#include "rendezvous/view/job_view.h"

namespace regroup::rendezvous {

/// All jobs of a daemon. Passes messages of sessions to the cores and effects of the cores to the
/// sessions, and keeps one timer at the cores' next deadline. With a journal, a decision is sent
/// only after its event is kept.
class JobTable {
   public:
    struct Hooks {
        std::function<void(const std::shared_ptr<Session>&, const FromDaemon&)> send;
        /// Sends a refusal, and nothing after it.
        std::function<void(const std::shared_ptr<Session>&, Errc, const std::string& reason)>
            refuse;
        /// Sends the messages that `next` makes, each when the peer has taken the last one, until
        /// it makes none.
        std::function<void(const std::shared_ptr<Session>&,
                           std::function<std::optional<FromDaemon>()> next)>
            send_parts{};
        std::function<void(const std::string& line)> log;
        /// Something happened to a job, and is kept. May be empty.
        std::function<void(const std::string& job, const RecordedEvent& event)> event{};
        /// A job that began at `began_ms` was restored with these events. May be empty.
        std::function<void(const std::string& job, std::int64_t began_ms,
                           const JobHistory& history)>
            restored{};
    };

    /// `io` and `clock` outlive it. Its timer's handler may run, cancelled, after its end.
    JobTable(boost::asio::io_context& io, const Clock& clock, const DaemonLimits& limits,
             Hooks hooks);

    /// From now on the journal determines the jobs, and whether this daemon is the leader. At most
    /// once, before the first session. `log` gets the lines about the journal; if it is empty, the
    /// hook does.
    void use(std::unique_ptr<journal::Journal> journal,
             std::function<void(const std::string&)> log);

    [[nodiscard]] bool has_journal() const noexcept { return journal_ != nullptr; }

    void handle(const std::shared_ptr<Session>& session, FromAgent message);
    /// True for the join of a node that its job knows, with the node's secret.
    [[nodiscard]] bool has_place(const FromAgent& message) const;
    /// The session's connection has ended.
    void end(const std::shared_ptr<Session>& session);

    /// The job of this name, or all jobs if it is empty.
    [[nodiscard]] std::vector<JobView> views(const std::string& job_id) const;
    /// The JSON of the same, of at most 1 MiB, as all who ask at this time share it.
    [[nodiscard]] SharedTexts::Text status_text(const std::string& job_id);
    /// The events of the job; null if there is no such job.
    [[nodiscard]] const JobHistory* history(const std::string& job_id) const;
    /// The report of its training program; null if there is no such job.
    [[nodiscard]] const JobTelemetry* telemetry(const std::string& job_id) const;

    enum class Standing : std::uint8_t {
        leads,      ///< It has the jobs.
        restores,   ///< It reads the jobs from its journal.
        stands_by,  ///< Another daemon has the jobs.
        ends,
    };
    [[nodiscard]] Standing standing() const noexcept;
    /// The endpoint of the daemon that leads, if another one does and it is known.
    [[nodiscard]] const std::string& leader() const noexcept { return leader_; }

    /// Gets the answer to an action.
    using Answered = std::function<void(bool done, std::string text)>;
    /// Does an action that is not `status`, and does not wait for the nodes to leave. `sees_all`:
    /// the answer may name other jobs. `answered` is called once, at once or when the journal has
    /// kept the action; never if this daemon ceases to lead before that.
    void operate(const Operate& operate, bool sees_all, const Answered& answered);

    /// Forgets jobs that are no longer needed.
    void sweep();
    /// Closes every job, and accepts no new one.
    void stop(const std::string& author, const std::string& reason);
    /// This daemon is about to end, but its jobs continue.
    void resign(std::function<void()> done);
    /// The daemon is about to end: answers all waiting operators.
    void end_waits();
    /// Jobs that are not closed.
    [[nodiscard]] std::size_t open_jobs() const;
    /// Wall-clock time since 1970.
    [[nodiscard]] static std::int64_t wall_ms();

   private:
    using Then = std::function<void()>;

    // Hooks of the journal (job_table_journal.cc).

    /// Restores the jobs in slices, between which the daemon serves others.
    void lead(std::vector<journal::KeptJob> kept);
    void take_up();
    void adopt(Job job);
    void begin_leading();
    void follow(const std::string& endpoint);
    /// Queues a message that arrives meanwhile.
    void wait(const std::shared_ptr<Session>& session, FromAgent message);
    /// Appends the reports that were held back by Job::defer.
    void keep_deferred(Job& job);
    /// Ends the journal of the previous job if it is no longer needed at `now`.
    void end_former(Job& job, Instant now);

    void join(const std::shared_ptr<Session>& session, Join join);
    [[nodiscard]] bool is_over(const Job& job, const JobPolicy& policy) const;
    void forget(std::map<std::string, Job>::iterator job);

    // Bounds on its growth by peers (job_table_growth.cc).

    void report(const std::shared_ptr<Session>& session, Job& job, NodeReport report);
    /// True if the job's journal may grow by `bytes`, and an entry, for what the node says.
    [[nodiscard]] bool may_keep(Job& job, const NodeId& node, std::size_t bytes) const;
    /// Why a join of `bytes` would take too much of the daemon, or of the job's journal; empty: it
    /// would not, and it has its part of the allowances. `job` may be null, for a new job.
    [[nodiscard]] std::string excess(Job* job, const Join& join, std::size_t bytes);
    /// Call after the core has decided about such a join.
    void settle(Job& job, const NodeId& node, std::size_t bytes);
    /// Makes room for one more job, of the peer at `address`. False if every job has to stay.
    bool make_room(const std::string& address);
    /// About how many bytes all nodes of all jobs take.
    [[nodiscard]] std::size_t nodes_bytes() const;
    [[nodiscard]] std::size_t attendance_bytes() const;

    // Requests of operators (job_operations.cc).
    void operate(const std::shared_ptr<Session>& session, const Operate& operate);
    void show_status(const std::shared_ptr<Session>& session, const Operate& operate);
    /// True if the operator may have one more answer on this connection, `pause` after the last
    /// one.
    [[nodiscard]] bool may_ask_again(Session& session, Duration pause) const;
    /// Has the node of a rank read a part of its output.
    void read_log(const std::shared_ptr<Session>& session, const Job& job, const Operate& operate);
    void tell_log(const LogRequests::Answer& answer);
    /// The job that an action is for; null once `answered` has been called instead.
    [[nodiscard]] Job* job_for(const Operate& operate, bool sees_all, const Answered& answered);
    /// The job that is meant, closed or not; null once `answered` has been called instead.
    [[nodiscard]] Job* job_named(const Operate& operate, bool sees_all, const Answered& answered);
    void show_events(const std::shared_ptr<Session>& session, const Job& job,
                     const Operate& operate);
    [[nodiscard]] EventFollowers::Source events_of(const std::string& job_id) const;
    /// `waiting`: the session that waits until the drained nodes have left; null: none does.
    void act(Job& job, const Operate& operate, const Answered& answered,
             const std::shared_ptr<Session>& waiting);
    void drain(Job& job, const Operate& operate, const Answered& answered,
               const std::shared_ptr<Session>& waiting);
    void release(Job& job, const Operate& operate, const Answered& answered);
    void stop(Job& job, const Operate& operate, const Answered& answered);
    void answer(const std::shared_ptr<Session>& session, bool done, std::string text);
    /// Answers the operators whose nodes have left.
    void answer_waiting(Job& job);

    /// Calls `then` when the event is kept and its effects are queued.
    void step(Job& job, const Event& event, Then then = nullptr);
    void advance(Job& job, Instant now);
    /// The result of a step of a core.
    struct StepResult {
        Effects effects;
        std::vector<JobEvent> events;
        std::int64_t wall_ms = 0;
    };
    [[nodiscard]] static StepResult run(Job& job, const journal::Entry& entry);
    /// Appends `entry` to the journal, and then applies its outcome.
    void record(Job& job, journal::Entry entry, StepResult outcome, Then then);
    void apply(Job& job, const StepResult& outcome);
    /// Of the events that are kept of one job.
    [[nodiscard]] std::size_t history_bytes_max() const;
    [[nodiscard]] journal::Entry entry_of(const Job& job, std::optional<Event> event) const;
    [[nodiscard]] bool speaks_for_node(const std::shared_ptr<Session>& session) const;
    /// Keeps the index of deadlines, and the timer, up to date. Call after each step of the job.
    void arm(Job& job);
    /// Call before the job is removed or replaced.
    void disarm(Job& job);
    void set_timer();
    void on_timer();
    /// Wall-clock time for the key of a new job: later than that of all others.
    [[nodiscard]] std::int64_t beginning_ms();

    const Clock& clock_;
    const DaemonLimits limits_;
    const Hooks hooks_;
    std::unique_ptr<journal::Journal> journal_;  // May be null.
    std::function<void(const std::string&)> journal_log_;
    LogLimiter peers_log_;  // Lines that peers cause as often as they like.
    std::map<std::string, Job> jobs_;
    std::int64_t last_beginning_ms_ = 0;
    struct TakingUp {
        std::deque<JobRestoration> rest;
        std::deque<std::pair<std::shared_ptr<Session>, FromAgent>> words;
        std::size_t words_bytes = 0;
    };
    std::shared_ptr<TakingUp> taking_up_;  // Until this daemon leads.
    bool leading_ = true;
    std::string leader_;  // The endpoint of the leader, if another daemon leads and it is known.
    bool closed_ = false;
    std::set<std::pair<Instant, std::string>> deadlines_;  // Of each job that has one.
    std::set<std::string> waited_for_;  // The jobs in whose `drain_waits` operators may wait.
    // The growth of all journals by new nodes: those of some of the largest jobs, and many others.
    Allowance newcomers_{{std::size_t{128} << 20U, std::size_t{128} << 10U}};
    EventFollowers followers_;
    LogRequests log_requests_;
    SharedTexts statuses_;
    Instant timer_at_ = Instant::max();
    boost::asio::steady_timer timer_;
    std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
};

}  // namespace regroup::rendezvous
