// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <thread>
#include <variant>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/result.h"
#include "rendezvous/worker_link/messages.h"
#include "rendezvous/worker_link/page.h"
#include "worker_sdk/src/base/round_scope.h"
#include "worker_sdk/src/net/fork_guard.h"
#include "worker_sdk/src/net/socket.h"

namespace regroup::link {

using worker_link::AssignWorker;
using worker_link::FromWorker;
using worker_link::WorkerPage;

/// This worker's line to its agent: a local socket, and a page of memory that both see.
///
///     control thread    holds WorkerPage::alive for as long as it lives; takes what the agent
///                       says, and interrupts the scope of a round that is over
///     any other thread  sends, looks at the page, waits for a place in a round
///
/// The thread runs no handlers of the program's signals and calls nothing of the user's.
class AgentLink {
   public:
    /// Attaches to the agent that listens at `socket` (as REGROUP_AGENT_SOCKET has it). Failures:
    /// `disconnected` if there is none or it wants nothing of this process, `deadline_exceeded`,
    /// `invalid_argument` for an agent of another build, `system`.
    [[nodiscard]] static Result<std::shared_ptr<AgentLink>> attach(const std::string& socket,
                                                                   const std::string& worker_id);
    /// Ends in order; the agent is told that this is no death.
    ~AgentLink();
    AgentLink(const AgentLink&) = delete;
    AgentLink& operator=(const AgentLink&) = delete;

    [[nodiscard]] WorkerPage& page() noexcept { return *page_; }
    /// For a SigtermPutOff, under which a SIGTERM is a word that this node may have to leave. The
    /// agent hears it too if a scheduler has said it to all, and asks this worker to leave within a
    /// moment: then nothing else comes of it. If it does not, the process ends by it.
    [[nodiscard]] pid_t agent_pid() const noexcept { return agent_pid_; }
    [[nodiscard]] int sigterm_bell() const noexcept { return sigterm_bell_.get(); }
    /// This process begins to end by itself.
    void mark_exiting() noexcept { page_->exiting.store(1); }

    /// Sends if the agent is there; otherwise it does not matter any more. Never blocks for long.
    void send(const FromWorker& message) noexcept;
    /// Says whether this worker takes part in several rounds: true from the start of its loop until
    /// the training is finished.
    void declare_elastic(bool elastic) noexcept;

    /// Whether `round` is over, as far as is known on this node.
    [[nodiscard]] bool ended(std::uint64_t round) const noexcept {
        return page_->ended_round.load() >= round;
    }
    /// Waits until it is, or the agent is gone; false if neither happens in time.
    [[nodiscard]] bool await_end(std::uint64_t round, Instant deadline);
    /// `scope` is interrupted when `round` is over or the agent is gone: at once, if it is.
    void guard(std::uint64_t round, const std::shared_ptr<RoundScope>& scope);
    /// No scope is guarded any more.
    void unguard() noexcept;

    /// The worker is to suspend at a step boundary of `round`, as the page says.
    [[nodiscard]] bool pause_wanted(std::uint64_t round) const noexcept {
        return page_->pause_round.load() >= round;
    }
    /// And this node is to leave there.
    [[nodiscard]] bool leave_wanted(std::uint64_t round) const noexcept {
        return pause_wanted(round) && leaving();
    }
    /// This node leaves: its workers save their state, also after the end of their round.
    [[nodiscard]] bool leaving() const noexcept {
        return page_->leaving.load() != worker_link::Leaving::no;
    }
    /// What was said about that; nothing if no word comes in time.
    [[nodiscard]] std::optional<worker_link::Pause> await_pause(Instant deadline);

    struct Leave {};  ///< This node leaves instead, at once.
    struct Gone {};   ///< The agent is.
    using Place = std::variant<AssignWorker, Leave, Gone>;
    /// Blocks until there is a place in a round beyond `round`, for as long as the agent is there:
    /// it may take hours until a job has enough nodes again.
    [[nodiscard]] Place await_place(std::uint64_t round);
    /// The last place that was given, if any.
    [[nodiscard]] std::optional<AssignWorker> place() const;

   private:
    AgentLink(net::Descriptor socket, net::Descriptor page_file, WorkerPage* page,
              std::string worker_id);

    void run();
    void receive_until_closed();
    void hear_sigterm();
    void decide_on_sigterm(bool agent_is_there);
    void take(const worker_link::ToWorker& message);
    void take(const worker_link::Welcome& message);
    void take(const worker_link::AssignWorker& message);
    void take(const worker_link::EndRound& message);
    void take(const worker_link::Pause& message);
    void note_gone();

    const std::string worker_id_;
    const net::Descriptor socket_;
    const net::Descriptor page_file_;
    const net::ForkGuard guard_;
    WorkerPage* const page_;
    const net::Descriptor stop_;            // An eventfd.
    const net::Descriptor sigterm_bell_;    // Another.
    const pid_t agent_pid_;                 // 0 if it cannot be seen from here.
    std::optional<Instant> sigterm_until_;  // The thread's.

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    // Guarded by mutex_.
    std::optional<AssignWorker> place_;
    std::optional<worker_link::Pause> pause_;
    std::uint64_t guarded_round_ = 0;
    std::shared_ptr<RoundScope> guarded_;
    bool gone_ = false;
    bool holding_ = false;  // The thread has begun.

    std::thread thread_;
};

}  // namespace regroup::link
