// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/elastic_loop.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "worker_sdk/src/base/process_mark.h"
#include "worker_sdk/src/elastic/optional_agent.h"
#include "worker_sdk/src/elastic/replica.h"
#include "worker_sdk/src/elastic/round_run.h"
#include "worker_sdk/src/elastic/step_clock.h"
#include "worker_sdk/src/elastic/vote.h"

namespace regroup::elastic {

/// The step that is being carried out. One object serves all steps of a loop:
///
///         begin_commit           end_commit               some rank pauses
///     open ------> voting -> applying -------> committed ------------------> met
///      \---------> voting -> finished
///         finish
///
/// If the round breaks, the step stays where it is until the next one opens.
class Step {
   public:
    enum class Stage : std::uint8_t {
        closed,  ///< There is no step.
        open,
        voting,
        applying,  ///< All ranks have voted; the program changes its state.
        committed,
        met,  ///< The ranks pause, and each knows that all have committed the step.
        finished,
    };
    using DepartureListener = std::function<void(const ElasticDeparture&)>;

    Step(OptionalAgent& agent, Replica& replica) noexcept : agent_(agent), replica_(replica) {}

    void on_departure(DepartureListener listener) { departure_listener_ = std::move(listener); }
    /// The next steps are those of `round`.
    void begin_round(RoundRun& round) noexcept;
    void open() noexcept;
    [[nodiscard]] Stage stage() const noexcept { return stage_; }
    /// Whether this step is committed, and the round ends behind it.
    [[nodiscard]] bool pauses() const noexcept {
        return (stage_ == Stage::committed || stage_ == Stage::met) && result_.pauses;
    }
    /// Explains `error` in a sentence if only some ranks have called finish(); else returns an
    /// empty text. `wait_failed`: this rank has waited in vain in this round.
    [[nodiscard]] std::string explain(const Error& error, bool wait_failed) const;

    // The program calls these; see ElasticStep.
    [[nodiscard]] std::uint64_t number() const noexcept { return replica_.step(); }
    [[nodiscard]] std::uint64_t samples_begin() const noexcept { return replica_.samples(); }
    SampleRange take(std::uint64_t count);
    void begin_commit();
    void end_commit();
    void finish();
    void report(std::string_view name, double value) const;
    void begin_section(std::string_view name) noexcept;
    void end_section() noexcept;

   private:
    void require_open(const char* call) const;
    void require_round() const;
    void settle_operations() const;
    [[nodiscard]] VoteResult vote(Ballot ballot);
    void meet();
    void announce_departure() const;

    const ProcessMark mark_;
    OptionalAgent& agent_;
    Replica& replica_;
    DepartureListener departure_listener_;
    RoundRun* round_ = nullptr;

    Stage stage_ = Stage::closed;
    bool finishes_ = false;  ///< This rank has called finish(), and may not have returned.
    std::optional<std::uint64_t> taken_{};
    VoteResult result_{};
    StepClock clock_{};
};

}  // namespace regroup::elastic
