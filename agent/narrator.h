// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>

#include "agent/agent.h"
#include "agent/watch/progress_watch.h"

namespace regroup::agent {

/// Prints, at the terminal of this node, what happens to its part of the job: its ranks, the waits,
/// the failures and their consequences. It decides nothing.
class Narrator {
   public:
    /// All references outlive the narrator.
    Narrator(const Clock& clock, OutputRelay& output, const AgentOptions& options,
             const AgentCore& core);

    // ---- The daemon. `peer` is its address.

    void connected();
    void disconnected(const std::string& peer);
    /// Call before the agent acts on the message.
    void received(const rendezvous::FromDaemon& message, const std::string& peer);
    /// True if the daemon has said that this node waits as a standby.
    [[nodiscard]] bool was_standby() const noexcept { return was_standby_; }
    void silent(const std::string& peer);
    /// True if the daemon has spoken on the present connection.
    [[nodiscard]] bool hears_daemon() const noexcept { return heard_; }
    /// An attempt to reach the daemon has failed. `answered`: another program, or a daemon that
    /// does not lead, has answered.
    void trouble(const std::string& reason, bool answered);

    // ---- Rounds and workers.

    void round_begins(const Assignment& assignment);
    /// The node is in no round now.
    void waits();
    void pauses(const PauseWorkers& effect);
    void started_ahead(const PrestartWorkers& effect);
    void killed_late(const SignalWorkers& effect);
    void waits_for_work(const TellAtWork& effect);
    void hangs(const KillWorker& effect);

    // ---- Progress.

    /// Says how far a wait has come: on a terminal in place, otherwise at most every 10 s. Call
    /// about once a second. `looks`: at the workers that have pages.
    void progress(std::span<const WorkerLook> looks);

    // ---- Failures.

    /// Call before the agent acts on the event. Prints the first failure of a round only: later
    /// ones follow from it, or from our own stopping.
    void exited(const WorkerExited& exited);
    /// The agent ends. If the verdict names a failure, the launcher prints it.
    void quits(const std::optional<rendezvous::Verdict>& verdict);

   private:
    void tell_waiting(const rendezvous::Waiting& waiting, const std::string& peer);
    void tell_partial_finish(const rendezvous::PartialFinish& finish);
    void report_failure(const std::string& cause, bool is_ours);
    [[nodiscard]] std::string waiting_text(const rendezvous::Waiting& waiting) const;
    /// Goes on with the nodes that wait, where, and for how long; empty for a standby.
    [[nodiscard]] std::string waiting_place(const rendezvous::Waiting& waiting,
                                            const std::string& peer) const;

    const Clock& clock_;
    OutputRelay& output_;
    const AgentOptions& options_;
    const AgentCore& core_;
    std::optional<WorkerFailure> failure_;  // The first of its round, not yet reported in full.
    RoundId failure_round_ = RoundId::none;
    std::string last_pause_;  // The last line about a pause.
    bool waits_ = false;
    Instant finish_at_{};  // The next line about ranks that have finished, while others go on.
    Duration finish_interval_{};
    Instant notice_at_{};  // The next line about waiting comes at this time or later.
    Duration notice_interval_{};
    std::optional<rendezvous::Waiting> waiting_;  // The last answer, while the node waits.
    std::string waiting_at_;                      // The daemon that gave it.
    bool transfers_ = false;                      // Its workers moved bytes at the last call.
    Instant progress_at_{};                       // Without a terminal, the next line comes then.
    static constexpr std::size_t kAnswersMax = 16;
    std::set<std::string> answers_;  ///< Printed answers of endpoints that are no daemon.
    int trouble_count_ = 0;
    bool heard_ = false;  // The daemon has spoken on this connection.
    bool was_standby_ = false;
    bool lost_ = false;  // The connection was lost, and the daemon has not spoken since.
    Instant trouble_at_{};
    Duration trouble_interval_{};
};

}  // namespace regroup::agent
