// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/context.h>
#include <regroup/elastic_loop.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "worker_sdk/src/base/process_mark.h"
#include "worker_sdk/src/elastic/optional_agent.h"
#include "worker_sdk/src/elastic/replica.h"
#include "worker_sdk/src/elastic/round_run.h"
#include "worker_sdk/src/elastic/step.h"

namespace regroup::elastic {

/// The loop behind ElasticLoop:
///
///              place in a round                        commit, commit, ...
///     suspended -------------------> forming -> state -> training ---> finished
///       ^                            |         |         |  \-----> left
///       +----------------------------+---------+---------+
///          the round is over: an Error of its groups, or a pause at a step boundary
///
/// One thread, that of `run` or `next`; the link's own interrupts the scope of the round.
class Loop {
   public:
    /// `link` may be nullptr: then there is one round, without an agent.
    Loop(ElasticOptions options, Context first, std::shared_ptr<link::AgentLink> link);
    ~Loop();
    Loop(const Loop&) = delete;
    Loop& operator=(const Loop&) = delete;

    /// For a process with several workers in it, as threads; see ElasticLoop.
    [[nodiscard]] static std::unique_ptr<ElasticLoop> make(ElasticOptions options, Context first,
                                                           std::shared_ptr<link::AgentLink> link);

    [[nodiscard]] bool is_over() const noexcept { return state_ != State::created && !training_; }
    [[nodiscard]] Replica& replica() noexcept { return replica_; }
    [[nodiscard]] const RoundRun& round() const noexcept { return *round_; }
    [[nodiscard]] Step& step() noexcept { return step_; }
    void resume_at(std::uint64_t step, std::uint64_t samples);
    Ending run(const ElasticCallbacks& callbacks);
    ElasticEvent next();
    bool repairs(const std::exception& error);
    [[nodiscard]] const ElasticRound& shown_round() const noexcept { return shown_round_; }
    [[nodiscard]] ElasticStep& shown_step() noexcept { return shown_step_; }
    [[nodiscard]] const ElasticLeave& shown_leave() const noexcept { return shown_leave_; }

   private:
    struct Training;
    struct EndOnException;

    void begin();
    void carry_out(ElasticEvent event, const ElasticCallbacks& callbacks);
    [[nodiscard]] std::optional<ElasticEvent> advance();
    [[nodiscard]] std::optional<ElasticEvent> train();
    void enter_round();
    void conclude();
    void await_end(const Error& error);
    void give_up_round(const std::string& reason) noexcept;
    void find_place();
    [[nodiscard]] ElasticEvent take_leave();

    const ProcessMark mark_;
    const ElasticOptions options_;
    OptionalAgent agent_;
    Replica replica_{agent_};
    Step step_{agent_, replica_};
    std::unique_ptr<RoundRun> round_;
    /// Rounds that are over: objects of the user may still refer to them.
    std::vector<std::unique_ptr<RoundRun>> past_;
    std::unique_ptr<Training, OwnerDeleter> training_;

    enum class State : std::uint8_t {
        created,
        placed,       ///< This rank has a place in a round.
        entered,      ///< The program prepares for the round, which has its state.
        in_step,      ///< The program carries out a step.
        broken,       ///< The round has ended within a step.
        at_boundary,  ///< The round has ended between two steps.
        leaving,      ///< There is no next round for this rank.
        saved,        ///< The program has saved its state.
    };
    State state_ = State::created;

    // Of the last events.
    ElasticRound shown_round_{};
    ElasticStep shown_step_{*this};
    ElasticLeave shown_leave_{};
};

}  // namespace regroup::elastic
