// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>

#include "agent/core/agent_core.h"
#include "agent/process/console.h"
#include "agent/watch/progress_watch.h"

namespace regroup::agent {

/// The agent's knowledge of its node now.
struct AgentView {
    const rendezvous::NodeReport& report;
    const Assignment& assignment;  ///< Of the last round that began.
    AgentCore::Parting parting{};
    Instant give_up_at = Instant::max();
    bool leaving = false;  ///< The agent has decided to end.
    bool draining = false;
    bool has_workers = false;

    [[nodiscard]] bool runs() const noexcept {
        return report.state == rendezvous::NodeState::running;
    }
};

/// Prints, at the terminal of a node, what happens to its part of the job: its ranks, the waits,
/// the failures and their consequences. It decides nothing, and chooses only the time of a line.
class Narrator {
   public:
    /// `console` outlives the narrator. `announces`: print the ranks of this node in each round,
    /// and how far waits have come.
    Narrator(Console& console, const AgentConfig& config, bool announces, Instant now);

    // ---- The daemon. `peer` is its address.

    void connected() { trouble_count_ = 0; }
    /// `was_heard`: the daemon has spoken on this connection.
    void disconnected(const AgentView& node, const std::string& peer, bool was_heard);
    /// Call before the agent acts on the message.
    void received(Instant now, const AgentView& node, const rendezvous::FromDaemon& message,
                  const std::string& peer);
    void silent(const std::string& peer);
    /// An attempt to reach the daemon has failed. `answered`: another program, or a daemon that
    /// does not lead, has answered.
    void trouble(Instant now, const AgentView& node, const std::string& reason, bool answered);

    // ---- Rounds and workers.

    void round_begins(const Assignment& assignment);
    /// The node is in no round now.
    void waits(Instant now);
    void pauses(const AgentView& node, const PauseWorkers& effect);
    void started_ahead(const PrestartWorkers& effect);
    void killed_late(const SignalWorkers& effect);
    void waits_for_work(const TellAtWork& effect);
    void hangs(const AgentView& node, const KillWorker& effect);

    // ---- Progress.

    /// Says how far a wait has come: on a terminal in place, otherwise at most every 10 s. Call
    /// about once a second. `looks`: at the workers that have pages.
    void progress(Instant now, const AgentView& node, std::span<const WorkerLook> looks);

    // ---- Failures.

    /// A worker has failed. Call before the agent acts on it. `was_suspended`: it waited for a
    /// round. Prints the first failure of a round only: later ones follow from it, or from our own
    /// stopping.
    void failed(const AgentView& node, const WorkerFailure& failure, bool was_suspended);
    /// The agent ends. If the verdict names a failure, the launcher prints it.
    void quits(const std::optional<rendezvous::Verdict>& verdict);

   private:
    /// Times of lines about something that lasts: the pauses between them double up to a limit.
    struct Rhythm {
        Instant next{};
        Duration pause{};
    };

    void tell_waiting(Instant now, const AgentView& node, const rendezvous::Waiting& waiting,
                      const std::string& peer);
    void tell_partial_finish(Instant now, const AgentView& node,
                             const rendezvous::PartialFinish& finish);
    void report_failure(const std::string& cause, bool is_ours);
    [[nodiscard]] std::string waiting_text(const AgentView& node,
                                           const rendezvous::Waiting& waiting) const;
    /// Goes on with the nodes that wait, where, and for how long; empty for a standby.
    [[nodiscard]] std::string waiting_place(Instant now, const AgentView& node,
                                            const rendezvous::Waiting& waiting,
                                            const std::string& peer) const;
    /// The rest of --join-timeout.
    [[nodiscard]] std::string patience_text(Instant now, const AgentView& node) const;

    Console& console_;
    const AgentConfig config_;
    const bool announces_;
    std::optional<WorkerFailure> failure_;  // The first of its round, not yet reported in full.
    RoundId failure_round_ = RoundId::none;
    std::string last_pause_;  // The last line about a pause.
    bool waits_ = false;
    Rhythm finish_;                               // Ranks have finished, while others go on.
    Rhythm notice_;                               // The node waits.
    Rhythm trouble_;                              // The daemon is not reached.
    std::optional<rendezvous::Waiting> waiting_;  // The last answer, while the node waits.
    std::string waiting_at_;                      // The daemon that gave it.
    bool transfers_ = false;                      // Its workers moved bytes at the last call.
    Instant progress_at_{};                       // Without a terminal, the next line comes then.
    static constexpr std::size_t kAnswersMax = 16;
    std::set<std::string> answers_;  ///< Printed answers of endpoints that are no daemon.
    int trouble_count_ = 0;
    bool lost_ = false;  // The connection was lost, and the daemon has not spoken since.
};

}  // namespace regroup::agent
