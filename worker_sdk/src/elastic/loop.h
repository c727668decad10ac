// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/context.h>
#include <regroup/elastic_loop.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/clock.h"
#include "worker_sdk/src/base/learned_orders.h"
#include "worker_sdk/src/base/process_mark.h"
#include "worker_sdk/src/elastic/registered_state.h"
#include "worker_sdk/src/elastic/step_clock.h"
#include "worker_sdk/src/elastic/straggler_detector.h"
#include "worker_sdk/src/elastic/vote.h"
#include "worker_sdk/src/link/agent_link.h"
#include "worker_sdk/src/link/progress_reporter.h"
#include "worker_sdk/src/link/telemetry_writer.h"

namespace regroup::elastic {

/// A round and its groups, which end with the scope of its context.
struct Round {
    explicit Round(Context context_in) : context(std::move(context_in)) {}

    const Context context;
    std::unique_ptr<ProcessGroup> steps{};
    std::unique_ptr<ProcessGroup> own_control{};  ///< nullptr where `steps` is on the CPU.
    bool shown = false;                           ///< The user has seen it.

    [[nodiscard]] ProcessGroup& control() const noexcept {
        return own_control ? *own_control : *steps;
    }
    [[nodiscard]] Groups groups() const noexcept { return {*steps, control()}; }
};

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

    [[nodiscard]] bool is_over() const noexcept { return started_ && !session_; }
    [[nodiscard]] RegisteredState& registered() noexcept { return registered_; }
    void resume_at(std::uint64_t step, std::uint64_t samples);
    void on_straggler(std::function<void(std::uint32_t, double)> listener);
    Ending run(const ElasticCallbacks& callbacks);
    ElasticEvent next();
    bool repairs(const std::exception& error);
    [[nodiscard]] const ElasticRound& shown_round() const noexcept { return shown_round_; }
    [[nodiscard]] ElasticStep& opened_step() noexcept { return opened_step_; }
    [[nodiscard]] const ElasticLeave& shown_leave() const noexcept { return leave_; }

    // For ElasticStep.
    [[nodiscard]] std::uint64_t step() const noexcept { return step_; }
    [[nodiscard]] std::uint64_t samples() const noexcept { return samples_; }
    [[nodiscard]] const Round& round() const noexcept { return *round_; }
    void begin_section(std::string_view name) noexcept;
    void end_section() noexcept;
    void report(std::string_view name, double value);
    SampleRange take(std::uint64_t count);
    void commit(const std::function<void()>& apply);
    void begin_commit();
    void end_commit();
    void finish();

   private:
    struct Session;
    struct SessionEnd;

    [[nodiscard]] std::optional<ElasticEvent> advance();
    void find_place();
    void enter_round();
    void begin_training();
    void open_step();
    void conclude();
    ElasticEvent take_leave();
    void form();
    [[nodiscard]] bool has_peers() const noexcept { return round_->context.world_size > 1; }
    [[nodiscard]] Digests digests_held();
    void bring_state(Digests mine);
    [[noreturn]] void give_up_state();
    void compare_replicas(const Digests& mine);
    void settle(const Dissent& dissent, const Digests& mine);
    void require_step_open(const char* call) const;
    void settle_operations();
    [[nodiscard]] Verdict vote_on_step(Ballot ballot);
    void meet_at_boundary(bool some_leave);
    void announce_departure();
    void note_end_of_step();
    [[nodiscard]] std::string finish_disagreement(const Error& error);
    void look_after_step();
    void compare_pace();
    void show_slow_ranks();
    void tell_resumed();
    [[nodiscard]] bool is_loss(const Error& error) const noexcept;
    void learn_of_end(const Error& error);
    void tell_failure(const char* what);
    [[nodiscard]] bool leaves_now() const noexcept;
    [[nodiscard]] bool find_next_place(bool at_boundary);
    void give_up_round(const std::string& reason) noexcept;

    const ProcessMark mark_;
    const ElasticOptions options_;
    const std::shared_ptr<link::AgentLink> link_;
    RegisteredState registered_;
    const std::shared_ptr<LearnedOrders> orders_ = std::make_shared<LearnedOrders>();
    link::ProgressReporter reporter_;
    link::TelemetryWriter telemetry_;
    std::function<void(std::uint32_t, double)> straggler_listener_;
    std::function<void(const ElasticDeparture&)> departure_listener_;

    std::uint64_t step_ = 0;
    std::uint64_t samples_ = 0;
    std::uint64_t history_ = 0;
    bool fresh_ = true;
    /// An interrupted transfer may have overwritten part of the state.
    bool torn_ = false;
    bool started_ = false;
    bool fails_by_itself_ = false;  ///< Not because of others, though they may be lost, too.

    std::unique_ptr<Round> round_;
    /// Rounds that are over: objects of the user may still refer to them.
    std::vector<std::unique_ptr<Round>> past_;
    bool has_shown_ = false;
    std::unique_ptr<Session, OwnerDeleter> session_;
    WaitMeter* meter_ = nullptr;  ///< Of the session.

    /// Where training is: what `next` does first.
    enum class At : std::uint8_t { place, round, step, between, leaving };
    At at_ = At::place;
    bool at_boundary_ = false;  ///< The last round ended between two steps.
    bool has_taken_leave_ = false;
    ElasticRound shown_round_{};
    ElasticStep opened_step_{*this};
    ElasticLeave leave_{};

    // The step that is being carried out.
    enum class Stage : std::uint8_t { open, committed, finished };
    Stage stage_ = Stage::open;
    bool finishing_ = false;  ///< This rank has called finish(), and may not have returned.
    bool voting_ = false;     ///< This rank has begun to vote.
    std::optional<std::uint64_t> taken_;
    bool pausing_ = false;
    bool some_leave_ = false;  ///< At the coming pause.
    bool all_paused_ = false;  ///< All ranks are known to have committed the step before the pause.
    bool applying_ = false;
    StepClock clock_{};

    // This round.
    std::uint64_t round_steps_ = 0;
    Duration communicator_time_{};
    Duration state_time_{};
    Instant training_began_{};
    Duration window_work_{};
    std::optional<StragglerDetector> stragglers_;
};

}  // namespace regroup::elastic
