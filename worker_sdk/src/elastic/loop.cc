// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/elastic/loop.h"

#include <regroup/error.h>

#include <memory>
#include <variant>

#include "worker_sdk/src/link/assigned_context.h"
#include "worker_sdk/src/link/sigterm.h"

namespace regroup::elastic {
namespace {

/// How long to wait for the message with the details of a drain, which follows the flag in the
/// page.
constexpr Duration kPauseLimit = std::chrono::seconds(1);
/// How long to wait until the agent reports the end of the round. It knows a death far sooner.
constexpr Duration kEndLimit = std::chrono::seconds(1);
/// The time to leave if the agent gave none.
constexpr Duration kLeaveLimit = std::chrono::seconds(30);

/// Whether the error means that peers are lost, so that the round cannot go on.
bool is_loss(const Error& error) noexcept {
    switch (error.code()) {
        case Errc::disconnected:
        case Errc::fenced:
        case Errc::deadline_exceeded:
        case Errc::closed:
            return true;
        default:
            return false;
    }
}

}  // namespace

/// The state of the thread that trains, while it trains.
struct Loop::Training {
    explicit Training(OptionalAgent& agent_in)
        : agent(agent_in),
          meter(agent.reporter),
          thread_reporter(agent.reporter),
          put_off(agent.link ? agent.link->put_off_sigterm() : link::SigtermPutOff(0, -1)) {}
    ~Training() {
        if (agent.link) {
            agent.link->unguard();  // Not later: another loop may guard a round of its own then.
        }
        agent.reporter.set_phase(link::Phase::leaving);
    }
    Training(const Training&) = delete;
    Training& operator=(const Training&) = delete;

    OptionalAgent& agent;
    link::WaitReporter meter;
    const link::ThreadReporter thread_reporter;
    link::SigtermPutOff put_off;
};

/// Ends training if an exception leaves the block.
struct Loop::EndOnException {
    std::unique_ptr<Training, OwnerDeleter>& training;
    const int exceptions = std::uncaught_exceptions();

    ~EndOnException() {
        if (std::uncaught_exceptions() > exceptions) {
            training.reset();
        }
    }
};

Loop::Loop(ElasticOptions options, Context first, std::shared_ptr<link::AgentLink> link)
    : options_(std::move(options)),
      agent_(std::move(link)),
      round_(std::make_unique<RoundRun>(std::move(first))) {}

Loop::~Loop() = default;

void Loop::resume_at(std::uint64_t step, std::uint64_t samples) {
    if (state_ != State::created && state_ != State::entered) {
        throw Error(Errc::invalid_argument,
                    "resume_at() after run(), and not at the beginning of a round");
    }
    replica_.resume_at(step, samples);
    if (state_ == State::entered) {
        agent_.reporter.committed(step);
        shown_round_.step = step;
    }
}

Ending Loop::run(const ElasticCallbacks& callbacks) {
    if (!callbacks.on_step || state_ != State::created) {
        throw Error(Errc::invalid_argument, callbacks.on_step
                                                ? "ElasticLoop::run() was called before"
                                                : "ElasticLoop::run() needs on_step");
    }
    step_.on_departure(callbacks.on_departure);
    const EndOnException end{training_};
    while (true) {
        const ElasticEvent event = next();
        if (event == ElasticEvent::finished) {
            return Ending::finished;
        }
        if (event == ElasticEvent::left) {
            return Ending::left;
        }
        try {
            carry_out(event, callbacks);
        } catch (const std::exception& error) {
            if (!repairs(error)) {
                throw;
            }
        }
    }
}

void Loop::carry_out(ElasticEvent event, const ElasticCallbacks& callbacks) {
    if (event == ElasticEvent::round && callbacks.on_round) {
        callbacks.on_round(shown_round_);
    } else if (event == ElasticEvent::step) {
        callbacks.on_step(shown_step_);
    } else if (event == ElasticEvent::leave && callbacks.on_leave) {
        callbacks.on_leave(shown_leave_);
    }
}

ElasticEvent Loop::next() {
    mark_.require("ElasticLoop");
    if (state_ == State::created) {
        begin();
    } else if (!training_) {
        throw Error(Errc::invalid_argument, "the training of this loop is over");
    }
    const EndOnException end{training_};
    while (true) {
        if (const std::optional<ElasticEvent> event = advance()) {
            return *event;
        }
    }
}

void Loop::begin() {
    state_ = State::placed;
    replica_.registered().keep_buffers();
    training_ = std::unique_ptr<Training, OwnerDeleter>(new Training(agent_));
    if (agent_.link) {
        agent_.link->declare_elastic(true);
    }
}

/// Does what can be done without the program; empty if that was not enough for an event.
std::optional<ElasticEvent> Loop::advance() {
    switch (state_) {
        case State::broken:
        case State::at_boundary:
            find_place();
            return std::nullopt;
        case State::leaving:
        case State::saved:
            return take_leave();
        default:
            break;
    }
    try {
        return train();
    } catch (const std::exception& error) {
        if (!repairs(error)) {
            throw;
        }
        return std::nullopt;
    }
}

/// Empty if the round is over.
std::optional<ElasticEvent> Loop::train() {
    if (state_ == State::placed) {
        enter_round();
        state_ = State::entered;
        return ElasticEvent::round;
    }
    if (state_ == State::entered) {
        // The user has now replaced all objects that referred to earlier rounds.
        past_.clear();
        agent_.reporter.set_phase(link::Phase::training);
        round_->began = now();
    } else if (step_.stage() == Step::Stage::finished) {
        conclude();
        return ElasticEvent::finished;
    } else if (step_.stage() < Step::Stage::committed) {
        throw Error(Errc::invalid_argument, "on_step returned from step " +
                                                std::to_string(replica_.step()) +
                                                " without commit() or finish()");
    } else if (step_.pauses()) {
        give_up_round("the round ends at this step boundary");
        state_ = State::at_boundary;
        return std::nullopt;
    } else {
        if (options_.compare_every != 0 && replica_.step() % options_.compare_every == 0) {
            replica_.compare(*round_);
        }
        if (round_->snapshot && replica_.step() % options_.snapshot_every == 0) {
            static_cast<void>(round_->snapshot->save(replica_.step()));
        }
    }
    step_.open();
    state_ = State::in_step;
    return ElasticEvent::step;
}

void Loop::enter_round() {
    RoundRun& round = *round_;
    training_->meter.use(&round.scope());
    step_.begin_round(round);
    agent_.reporter.begin_round(round.number(), round.scope());
    if (agent_.link) {
        agent_.link->guard(round.number(), ContextScope::of(round.context));
        round.scope().on_break([link = std::weak_ptr(agent_.link), number = round.number()](
                                   std::uint32_t peer, const std::string& how) {
            if (const auto agent = link.lock()) {
                agent->send({worker_link::PeerLost{.round = number, .peer = peer, .text = how}});
            }
        });
    }
    const Instant began = now();
    Digests held = replica_.digests_held(round);
    const Instant prepared = now();
    round.form(options_, replica_.orders());
    const Instant formed = now();
    if (options_.snapshot_every != 0) {
        round.snapshot = std::make_unique<snapshot::RankSnapshot>(
            round.context, SnapshotOptions{.name = "elastic", .replicated = true});
        replica_.add_to(*round.snapshot);
    }
    replica_.bring(round, std::move(held));
    round.communicator_time = formed - prepared;
    round.state_time = (prepared - began) + (now() - formed);
    round.shown = true;
    shown_round_ = {.context = &round.context,
                    .group = round.steps.get(),
                    .step = replica_.step(),
                    .first = shown_round_.context == nullptr};
}

/// All ranks have finished.
void Loop::conclude() {
    round_->snapshot.reset();
    if (agent_.link) {
        // The others may end before this one: broken connections are normal now.
        round_->scope().on_break({});
        agent_.link->unguard();
        agent_.link->declare_elastic(false);  // No round may interrupt the rest of the program.
    }
    training_.reset();
}

bool Loop::repairs(const std::exception& error) {
    if (!training_ || !mark_.is_here()) {
        return false;  // The failure of a forked child is not that of the rank.
    }
    if (state_ == State::leaving || state_ == State::saved) {
        training_.reset();
        return false;
    }
    const bool wait_failed = training_->meter.has_failed();
    const auto* const known = dynamic_cast<const Error*>(&error);
    // After an error in `apply` the state would be half changed.
    if (known != nullptr && is_loss(*known) && agent_.link &&
        step_.stage() != Step::Stage::applying) {
        give_up_round(known->what());
        await_end(*known);
        state_ = State::broken;
        return true;
    }
    const std::string disagreement = known != nullptr ? step_.explain(*known, wait_failed) : "";
    const std::string what = disagreement.empty() ? error.what() : disagreement;
    // The agent hears it before the others can notice it, so that it knows the cause first. A rank
    // that fails because of the others says nothing.
    if (!disagreement.empty()) {
        agent_.send(worker_link::Fatal{.kind = worker_link::FatalKind::user_error, .text = what});
    } else if (replica_.dissents() || (!wait_failed && !agent_.ended(round_->number()))) {
        agent_.send(worker_link::Fatal{.kind = worker_link::FatalKind::error, .text = what});
    }
    // Otherwise the others would wait for this rank.
    give_up_round("training has failed on this rank: " + what);
    training_.reset();
    if (!disagreement.empty()) {
        throw Error(Errc::invalid_argument, disagreement);
    }
    return false;
}

/// Waits until the agent confirms the end of the round. If a worker has died, the agent reports it
/// soon. If only a connection broke, the agent hears that from the workers at its ends, and the
/// round ends for that. Without a daemon the agent reports nothing; then this rank suspends by
/// itself.
void Loop::await_end(const Error& error) {
    agent_.reporter.suspend();
    if (!agent_.link->await_end(round_->number(), after(now(), kEndLimit))) {
        agent_.send(worker_link::Remark{
            .text = "rank " + std::to_string(round_->context.rank) +
                    " has lost its peers in round " + std::to_string(round_->number()) +
                    ", of whose end nothing was heard, and gives it up: " + error.what()});
    }
}

void Loop::give_up_round(const std::string& reason) noexcept {
    if (agent_.link) {
        agent_.link->unguard();
    }
    round_->give_up(reason);
}

/// Waits for the next round, or learns that this node leaves instead.
void Loop::find_place() {
    const bool at_boundary = state_ == State::at_boundary;
    const std::uint64_t number = round_->number();
    round_->snapshot.reset();
    replica_.registered().restore_buffers();  // The step that was lost may have changed them.
    if (at_boundary && step_.stage() == Step::Stage::met && agent_.leave_wanted(number)) {
        state_ = State::leaving;
        return;
    }
    agent_.reporter.suspend();
    const bool is_whole = replica_.condition() == Condition::whole;
    agent_.send(worker_link::Suspended{
        .round = number, .step = is_whole ? replica_.step() : 0, .at_boundary = at_boundary});
    const link::AgentLink::Place place = agent_.link->await_place(number);
    if (std::holds_alternative<link::AgentLink::Gone>(place)) {
        throw Error(Errc::disconnected, "the agent that started this worker is gone, after step " +
                                            std::to_string(replica_.step()) + " of round " +
                                            std::to_string(number));
    }
    const auto* const assigned = std::get_if<worker_link::AssignWorker>(&place);
    if (assigned == nullptr) {
        state_ = State::leaving;
        return;
    }
    auto next = std::make_unique<RoundRun>(link::context_of(round_->context, *assigned));
    if (round_->shown) {
        past_.push_back(std::move(round_));
    }
    round_ = std::move(next);
    state_ = State::placed;
}

/// Lets the program save once, if this rank has a state; then training is over.
ElasticEvent Loop::take_leave() {
    agent_.reporter.set_phase(link::Phase::leaving);
    if (replica_.condition() == Condition::torn) {
        throw Error(Errc::system,
                    "this node leaves while this rank has half of a state, which is not saved");
    }
    if (state_ == State::saved || replica_.condition() == Condition::fresh) {
        // A scheduler's signal may come last, where another node was the first to get it.
        training_->put_off.ignore_from_now_on();
        training_.reset();
        return ElasticEvent::left;
    }
    const auto pause = agent_.link->await_pause(after(now(), kPauseLimit));
    const Duration limit =
        pause && pause->limit_ms > 0 ? std::chrono::milliseconds(pause->limit_ms) : kLeaveLimit;
    shown_leave_ = {.step = replica_.step(),
                    .reason = pause ? pause->reason : "this node leaves the job",
                    .deadline = after(now(), limit)};
    state_ = State::saved;
    return ElasticEvent::leave;
}

}  // namespace regroup::elastic
