// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <variant>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/result.h"
#include "rendezvous/worker_link/messages.h"
#include "rendezvous/worker_link/page.h"
#include "worker_sdk/src/base/round_scope.h"
#include "worker_sdk/src/link/mapped_page.h"
#include "worker_sdk/src/link/sigterm.h"
#include "worker_sdk/src/link/snapshot_door.h"
#include "worker_sdk/src/net/fork_guard.h"
#include "worker_sdk/src/net/wakeup.h"

namespace regroup::link {

using worker_link::AssignWorker;
using worker_link::FromWorker;
using worker_link::WorkerPage;

/// The connection of this worker to its agent: a local socket, and a page of shared memory.
///
///     control thread    holds WorkerPage::alive while it lives; receives the messages of the
///                       agent, and interrupts the scope of a round that is over
///     any other thread  sends, reads the page, waits for a place in a round
///
/// The control thread runs no signal handlers of the program and no code of the user.
class AgentLink {
   public:
    /// Attaches to the agent that listens at `path` (REGROUP_AGENT_SOCKET). Failures:
    /// `disconnected` if there is no agent or it does not accept this process, `deadline_exceeded`,
    /// `invalid_argument` for an agent of another build, `system`.
    [[nodiscard]] static Result<std::shared_ptr<AgentLink>> attach(const std::string& path,
                                                                   const std::string& worker_id);
    /// Ends in order and tells the agent so.
    ~AgentLink();
    AgentLink(const AgentLink&) = delete;
    AgentLink& operator=(const AgentLink&) = delete;

    [[nodiscard]] WorkerPage& page() const noexcept { return **page_; }
    /// While the result lives, a SIGTERM means that this node may have to leave. If a scheduler has
    /// sent it to the whole node, the agent soon asks this worker to leave, and the signal has no
    /// other effect. Otherwise the signal ends the process.
    [[nodiscard]] SigtermPutOff put_off_sigterm() const noexcept { return sigterm_.put_off(); }
    /// The same with another reader: the signal adds to `bell`, an eventfd.
    [[nodiscard]] SigtermPutOff put_off_sigterm(int bell) const noexcept {
        return sigterm_.put_off(bell);
    }

    /// Sends if the agent is there; otherwise does nothing. Never blocks for long.
    void send(const FromWorker& message) noexcept;
    /// Says whether this worker takes part in several rounds: true from the start of its loop until
    /// the training is finished.
    void declare_elastic(bool elastic) noexcept;
    /// Says that this worker, which is not elastic, ends in order at a step on which all ranks
    /// agree when its agent asks for a pause. `bell`, an eventfd that lasts as long as the process,
    /// is rung then.
    void declare_stops(int bell) noexcept;

    /// Whether `round` is over, as far as is known on this node.
    [[nodiscard]] bool ended(std::uint64_t round) const noexcept {
        return page().ended_round.load() >= round;
    }
    /// Waits until `round` is over or the agent is gone; false if neither happens in time.
    [[nodiscard]] bool await_end(std::uint64_t round, Instant deadline);
    /// Interrupts `scope` when `round` is over or the agent is gone; at once, if that has happened.
    void guard(std::uint64_t round, const std::shared_ptr<RoundScope>& scope);
    /// Stops guarding.
    void unguard() noexcept;

    /// Whether the page asks the worker to suspend at a step boundary of `round`.
    [[nodiscard]] bool pause_wanted(std::uint64_t round) const noexcept {
        return page().pause_round.load() >= round;
    }
    /// Whether this node leaves: then its workers save their state, also after the end of their
    /// round.
    [[nodiscard]] bool leaving() const noexcept {
        return page().leaving.load() != worker_link::Leaving::no;
    }
    /// Waits for the agent's message about the pause; nullopt if it does not come in time.
    [[nodiscard]] std::optional<worker_link::Pause> await_pause(Instant deadline);

    /// A socket for messages about snapshots. Failures: `disconnected` if the agent is gone,
    /// `deadline_exceeded`, `system` if the agent refuses.
    [[nodiscard]] Result<UniqueFd> open_snapshots(Instant deadline) {
        return snapshot_door_.open([this] { send(worker_link::OpenSnapshots{}); }, deadline);
    }

    struct Leave {};  ///< This node leaves at once.
    struct Gone {};   ///< The agent is gone.
    using Place = std::variant<AssignWorker, Leave, Gone>;
    /// Blocks until this worker has a place in a round after `round`, while the agent lives. It may
    /// take hours until a job has enough nodes again.
    [[nodiscard]] Place await_place(std::uint64_t round);
    /// The last place that the agent assigned, if any.
    [[nodiscard]] std::optional<AssignWorker> place() const;
    /// The key of the workers of the round in which this process was started; empty if that is not
    /// `round`, or the agent has none.
    [[nodiscard]] std::string round_key(std::uint64_t round) const {
        return round == first_round_.round ? first_round_.key : "";
    }

   private:
    AgentLink(net::Pollable socket, std::unique_ptr<MappedPage> page, std::string worker_id,
              worker_link::Welcome welcome);

    void receive_until_stopped();
    void take(const worker_link::ToWorker& message, UniqueFd descriptor);
    void interrupt_guarded(std::uint64_t round, const std::string& reason);
    void save_records(const std::string& prefix);
    void note_gone();

    const std::string worker_id_;
    const worker_link::Welcome first_round_;
    net::Pollable socket_;
    const net::ForkGuard guard_;
    const std::unique_ptr<MappedPage> page_;
    net::Wakeup stop_;
    SigtermBell sigterm_;
    SnapshotDoor snapshot_door_;

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    // Guarded by mutex_.
    std::optional<AssignWorker> place_;
    struct {
        std::optional<worker_link::Pause> last{};
        int bell = -1;  ///< An eventfd, or -1.
    } pause_;
    struct {
        std::uint64_t round = 0;
        std::shared_ptr<RoundScope> scope{};
    } guarded_;
    bool gone_ = false;

    /// Writes the flight records: a slow disk must not hold up the control thread. `thread`: used
    /// by the control thread, and by the destructor after its end.
    struct {
        std::atomic<bool> is_busy = false;
        std::thread thread{};
    } records_;

    std::thread thread_;
};

}  // namespace regroup::link
