// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "rendezvous/core/messages.h"

namespace regroup::rendezvous {

/// The budget that a failed round is charged to.
enum class Charge : std::uint8_t {
    failure,
    hang,
    loss,   ///< Of nodes. Never counts as lack of progress.
    retry,  ///< Charged to no budget; limited only by the lack of progress.
    /// A connection between live workers broke. Charged to no budget; the next round follows after
    /// a back-off.
    severed,
};

/// The used and remaining budgets of a job, and its back-off before a restart.
///
/// Progress means at least one more committed step than at the last failed round. In a job that
/// reports no steps, a round that lasts `kLongRound` is progress. Pure: the same calls give the
/// same answers.
class RestartBudget {
   public:
    /// A round that lasted this long resets the back-off, however it ended.
    static constexpr Duration kLongRound = std::chrono::seconds(10);
    static constexpr Duration kDelayLimit = std::chrono::seconds(30);

    enum class Answer : std::uint8_t { again, exhausted, no_progress };
    struct Ruling {
        Answer answer = Answer::again;
        Duration delay{};  ///< With `again`: the back-off from the end of the round to the next.

        friend bool operator==(const Ruling&, const Ruling&) = default;
    };

    explicit RestartBudget(const JobPolicy& policy);

    /// From now on the workers of this job are expected to report steps.
    void expect_steps() noexcept { steps_expected_ = true; }
    /// A worker has committed at least `step`. Lower or repeated values change nothing. Of several
    /// calls without a `charge` between them only the highest counts.
    void reach(std::uint64_t step) noexcept;
    /// `round` has failed after `lasted`. `count`: the number of lost nodes, for Charge::loss.
    [[nodiscard]] Ruling charge(Charge charge, RoundId round, Duration lasted,
                                std::uint32_t count = 1);

    /// The charges since the last refill.
    [[nodiscard]] std::uint32_t used(Charge charge) const noexcept;
    /// The limit of the budget; nullopt: no limit.
    [[nodiscard]] std::optional<std::uint32_t> allowed(Charge charge) const noexcept;
    /// Failed rounds in a row without progress, as far as they are counted.
    [[nodiscard]] std::uint32_t rounds_without_progress() const noexcept {
        return rounds_without_progress_;
    }
    /// Failures, hangs and retries after which another round began. Never decreases.
    [[nodiscard]] std::uint32_t restarts() const noexcept { return restarts_; }
    [[nodiscard]] std::uint64_t step() const noexcept { return step_; }

   private:
    /// The budget that is charged: hangs without a budget of their own are failures.
    [[nodiscard]] Charge account(Charge charge) const noexcept;
    [[nodiscard]] Duration delay(RoundId round) const noexcept;

    Budgets budgets_;
    std::uint32_t failures_max_;
    std::uint64_t seed_;
    bool steps_expected_ = false;
    std::uint64_t step_ = 0;             // The highest known step.
    std::uint64_t step_at_end_ = 0;      // The step at the last failed round.
    std::uint32_t used_[3] = {0, 0, 0};  // By Charge.
    std::uint32_t rounds_without_progress_ = 0;
    std::uint32_t crash_loop_ = 0;  // Short failed rounds in a row without progress.
    std::uint32_t restarts_ = 0;
};

}  // namespace regroup::rendezvous
