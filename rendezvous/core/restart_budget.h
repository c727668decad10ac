// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "rendezvous/core/messages.h"

namespace regroup::rendezvous {

/// By what a round ended badly, as far as budgets are concerned.
enum class Charge : std::uint8_t {
    failure,
    hang,
    loss,   ///< Of nodes. Never counts as lack of progress.
    retry,  ///< Charged to nothing, and bounded by the lack of progress alone.
    /// A connection between live workers broke. Charged to nothing, but rests before it tries
    /// again.
    severed,
};

/// What a job has used up, what it may still lose, and how long it rests before it tries again.
///
/// Progress is one more committed step than at the last bad end. A job that reports no steps makes
/// progress by rounds that last (`kLongRound`). Pure: same calls, same answers.
class RestartBudget {
   public:
    /// A round that lasted this long was worth while, whatever came of it.
    static constexpr Duration kLongRound = std::chrono::seconds(10);
    static constexpr Duration kDelayLimit = std::chrono::seconds(30);

    enum class Answer : std::uint8_t { again, exhausted, no_progress };
    struct Ruling {
        Answer answer = Answer::again;
        Duration delay{};  ///< With `again`: from the end of the round to the next one.

        friend bool operator==(const Ruling&, const Ruling&) = default;
    };

    explicit RestartBudget(const JobPolicy& policy);

    /// The workers of this job report steps, from now on.
    void expect_steps() noexcept { steps_expected_ = true; }
    /// Some worker has committed `step`, at least. Repetition and going back change nothing, and
    /// of several calls without a `charge` between them only the highest counts.
    void reach(std::uint64_t step) noexcept;
    /// `round` has ended badly after `lasted`; `count` nodes were lost in it, for Charge::loss.
    [[nodiscard]] Ruling charge(Charge charge, RoundId round, Duration lasted,
                                std::uint32_t count = 1);

    /// Charged since the last refill.
    [[nodiscard]] std::uint32_t used(Charge charge) const noexcept;
    /// What may be charged; nothing: any number.
    [[nodiscard]] std::optional<std::uint32_t> allowed(Charge charge) const noexcept;
    /// Bad ends in a row without progress, as far as they are counted.
    [[nodiscard]] std::uint32_t rounds_without_progress() const noexcept {
        return rounds_without_progress_;
    }
    /// Failures, hangs and retries that were answered by another round. Never given back.
    [[nodiscard]] std::uint32_t restarts() const noexcept { return restarts_; }
    [[nodiscard]] std::uint64_t step() const noexcept { return step_; }

   private:
    /// Hangs without a budget of their own are failures.
    [[nodiscard]] Charge account(Charge charge) const noexcept;
    [[nodiscard]] Duration delay(RoundId round) const noexcept;

    Budgets budgets_;
    std::uint32_t failures_max_;
    std::uint64_t seed_;
    bool steps_expected_ = false;
    std::uint64_t step_ = 0;             // Highest known.
    std::uint64_t step_at_end_ = 0;      // At the last bad end.
    std::uint32_t used_[3] = {0, 0, 0};  // By Charge.
    std::uint32_t rounds_without_progress_ = 0;
    std::uint32_t crash_loop_ = 0;  // Bad ends in a row without progress, of short rounds.
    std::uint32_t restarts_ = 0;
};

}  // namespace regroup::rendezvous
