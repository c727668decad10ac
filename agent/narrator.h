// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <set>
#include <string>

#include "agent/agent.h"

namespace regroup::agent {

/// Tells the people at this node's terminal what happens to its part of the job: where its ranks
/// are, what is waited for, what failed and what followed from it. It decides nothing.
class Narrator {
   public:
    /// `options` and `core` are the agent's own; all references outlive the narrator.
    Narrator(const Clock& clock, OutputRelay& output, const AgentOptions& options,
             const AgentCore& core);

    // ---- The daemon; `peer` is its address.

    void connected();
    void disconnected(const std::string& peer);
    /// Before the message is acted upon.
    void received(const rendezvous::FromDaemon& message, const std::string& peer);
    /// It has said that this node waits as a standby.
    [[nodiscard]] bool was_standby() const noexcept { return was_standby_; }
    void silent(const std::string& peer);
    /// On the present connection.
    [[nodiscard]] bool hears_daemon() const noexcept { return heard_; }
    /// An attempt to reach it has failed; `answered` if somebody was there who is not the daemon.
    void trouble(const std::string& reason, bool answered);

    // ---- Rounds and workers.

    void round_begins(const Assignment& assignment);
    /// The node is in no round.
    void waits();
    void pauses(const PauseWorkers& effect);
    void started_ahead(const PrestartWorkers& effect);
    void killed_late(const SignalWorkers& effect);
    void waits_for_work(const TellAtWork& effect);
    void hangs(const KillWorker& effect);

    // ---- Failures.

    /// Before it is acted upon. The first failure of a round is news; what follows from it, or from
    /// our own stopping, is not.
    void exited(const WorkerExited& exited);
    /// The agent ends; if a verdict names a failure, the launcher tells that.
    void quits(const std::optional<rendezvous::Verdict>& verdict);

   private:
    void tell_waiting(const rendezvous::Waiting& waiting, const std::string& peer);
    void report_failure(const std::string& cause);

    const Clock& clock_;
    OutputRelay& output_;
    const AgentOptions& options_;
    const AgentCore& core_;
    std::optional<WorkerFailure> failure_;  // The first of a round, not yet reported in full.
    RoundId failure_round_ = RoundId::none;
    std::string last_pause_;  // As it was told.
    bool waits_ = false;
    Instant notice_at_{};  // Of what it waits for: none before this.
    Duration notice_interval_{};
    static constexpr std::size_t kAnswersMax = 16;
    std::set<std::string> answers_;  ///< Of endpoints that are no rendezvous.
    int trouble_count_ = 0;
    bool heard_ = false;  // On this connection.
    bool was_standby_ = false;
    bool lost_ = false;  // It was there, and has not been heard since.
    Instant trouble_at_{};
    Duration trouble_interval_{};
};

}  // namespace regroup::agent
