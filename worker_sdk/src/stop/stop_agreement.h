// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/context.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/result.h"
#include "worker_sdk/src/base/process_mark.h"
#include "worker_sdk/src/base/round_scope.h"
#include "worker_sdk/src/net/wakeup.h"
#include "worker_sdk/src/stop/stop_board.h"

namespace regroup::stopping {

/// The agreement of the ranks of a round on the step at which they stop, by way of the StopBoard.
///
///     watch thread   waits until a stop is asked for, answers, and waits for the decision
///     bell thread    asks, when the process got SIGTERM or its agent wants it; answers for a rank
///                    that ends
///
/// When a rank has answered, its later calls of `requested` wait for the decision, so no rank
/// begins the step that is decided. Both threads work whatever the program does, so nothing waits
/// for the program.
class StopAgreement {
   public:
    struct Hooks {
        /// Whether the agent of this process wants a stop. Called after each ring of `bell`.
        std::function<bool()> is_wanted{};
        /// The agreement has failed, for this reason, and this process has got SIGTERM.
        std::function<void(const std::string& why)> end_by_signal{};
        /// `requested` is about to return true.
        std::function<void()> on_stop{};
    };
    /// Connects to the store. Throws as Context::store. `limit`: for the answers of all ranks.
    StopAgreement(const Context& context, Hooks hooks, Duration limit);
    /// Tells the other ranks that this one begins no more steps.
    ~StopAgreement();
    StopAgreement(const StopAgreement&) = delete;
    StopAgreement& operator=(const StopAgreement&) = delete;

    /// As regroup::stop_requested.
    [[nodiscard]] bool requested(std::uint64_t step) {
        const std::uint64_t next = step + 1;
        if (next <= next_.load(std::memory_order_relaxed)) [[unlikely]] {
            require_order(step);
        }
        // In this order, and the watch thread does it the other way round: either it sees this
        // step, or this thread sees that a stop was asked for.
        next_.store(next);
        return phase_.load() != Phase::training && decide(step);
    }

    /// An eventfd: a signal handler adds to it to ask for a stop.
    [[nodiscard]] int signal_bell() const noexcept { return signal_.descriptor(); }
    /// An eventfd: whoever changes what `is_wanted` returns adds to it.
    [[nodiscard]] int bell() const noexcept { return bell_.descriptor(); }

    /// This rank begins no more steps. Waits until the others can know it, for at most `limit`. Any
    /// thread.
    void end(Duration limit);
    /// The same at the end of the process, which does not wait for the threads.
    void end_with_process(Duration limit);

   private:
    enum class Phase : std::uint8_t { training, asked, decided, failed };

    void require_order(std::uint64_t step) const;
    [[nodiscard]] bool decide(std::uint64_t step);

    void watch();
    void agree();
    void ring();
    void obey_bells(std::optional<Instant>& signalled_until);
    void ask(const std::string& why);
    [[nodiscard]] bool claim_answer();
    void note_through();
    void decided(std::uint64_t step);
    void fail(const std::exception& error);

    const std::uint32_t rank_;
    const bool serves_store_;
    const Hooks hooks_;
    const Duration limit_;
    const StopBoard board_;
    const ProcessMark mark_;
    /// Ends the waits of the threads.
    const std::shared_ptr<RoundScope> own_scope_ = std::make_shared<RoundScope>();
    const RoundScope::Registration registration_;
    net::Wakeup signal_;
    net::Wakeup bell_;

    alignas(64) std::atomic<std::uint64_t> next_ = 0;  ///< The first step that has not begun.
    std::atomic<Phase> phase_ = Phase::training;

    alignas(64) std::mutex mutex_;
    std::condition_variable changed_;
    struct {
        std::uint64_t step = 0;  ///< Once decided.
        std::optional<Failure> failure{};
        bool is_asked_here = false;  ///< This rank has asked the others.
        bool is_claimed = false;     ///< A thread answers for this rank.
        bool is_through = false;     ///< The others need nothing more of this rank.
        bool is_ending = false;
        bool is_over = false;
    } state_;  // Guarded by mutex_.

    std::thread watch_;
    std::thread ringer_;
};

}  // namespace regroup::stopping
