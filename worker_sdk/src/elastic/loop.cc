// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/elastic/loop.h"

#include <regroup/error.h>

#include <exception>
#include <utility>

#include "worker_sdk/src/link/assigned_context.h"
#include "worker_sdk/src/link/process_link.h"
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

}  // namespace

/// The state of the thread that trains, while it trains.
struct Loop::Session {
    explicit Session(Loop& loop)
        : agent(loop.link_),
          meter(loop.reporter_),
          farewell{loop.reporter_},
          thread_reporter(loop.reporter_) {
        if (agent) {
            put_off.emplace(agent->agent_pid(), agent->sigterm_bell());
        }
    }
    ~Session() {
        if (agent) {
            agent->unguard();  // Not later: another loop may guard a round of its own then.
        }
    }
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    /// Shows the phase `leaving` when training is over, however it ends.
    struct Farewell {
        link::ProgressReporter& reporter;
        ~Farewell() { reporter.set_phase(link::Phase::leaving); }
    };

    const std::shared_ptr<link::AgentLink> agent;
    link::WaitReporter meter;
    const Farewell farewell;
    const link::ThreadReporter thread_reporter;
    std::optional<link::SigtermPutOff> put_off{};
};

/// Ends a session, also where an exception leaves the block.
struct Loop::SessionEnd {
    std::unique_ptr<Session, OwnerDeleter>& session;
    bool is_due = true;

    ~SessionEnd() {
        if (is_due) {
            session.reset();
        }
    }
};

Loop::Loop(ElasticOptions options, Context first, std::shared_ptr<link::AgentLink> link)
    : options_(std::move(options)),
      link_(std::move(link)),
      reporter_(link_ ? &link_->page() : nullptr),
      telemetry_(link_ ? &link_->page() : nullptr),
      round_(std::make_unique<Round>(std::move(first))) {}

Loop::~Loop() = default;

void Loop::resume_at(std::uint64_t step, std::uint64_t samples) {
    if (started_) {
        throw Error(Errc::invalid_argument, "resume_at() after run()");
    }
    step_ = step;
    samples_ = samples;
}

void Loop::on_straggler(std::function<void(std::uint32_t, double)> listener) {
    straggler_listener_ = std::move(listener);
}

Ending Loop::run(const ElasticCallbacks& callbacks) {
    if (!callbacks.on_step || started_) {
        throw Error(Errc::invalid_argument, started_ ? "ElasticLoop::run() was called before"
                                                     : "ElasticLoop::run() needs on_step");
    }
    departure_listener_ = callbacks.on_departure;
    const SessionEnd end{session_};
    while (true) {
        const ElasticEvent event = next();
        try {
            switch (event) {
                case ElasticEvent::round:
                    if (callbacks.on_round) {
                        callbacks.on_round(shown_round_);
                    }
                    break;
                case ElasticEvent::step:
                    callbacks.on_step(opened_step_);
                    break;
                case ElasticEvent::leave:
                    if (callbacks.on_leave) {
                        callbacks.on_leave(leave_);
                    }
                    break;
                case ElasticEvent::finished:
                    return Ending::finished;
                case ElasticEvent::left:
                    return Ending::left;
            }
        } catch (const std::exception& error) {
            if (!repairs(error)) {
                throw;
            }
        }
    }
}

ElasticEvent Loop::next() {
    mark_.require("ElasticLoop");
    if (!std::exchange(started_, true)) {
        registered_.keep_buffers();
        session_ = std::unique_ptr<Session, OwnerDeleter>(new Session(*this));
        meter_ = &session_->meter;
        if (link_) {
            link_->declare_elastic(true);
        }
    } else if (!session_) {
        throw Error(Errc::invalid_argument, "the training of this loop is over");
    }
    SessionEnd end{session_};
    std::optional<ElasticEvent> event;
    while (!event) {
        if (at_ == At::between) {
            find_place();
        } else if (at_ == At::leaving) {
            event = take_leave();
        } else {
            try {
                event = advance();
            } catch (const std::exception& error) {
                if (!repairs(error)) {
                    throw;
                }
            }
        }
    }
    end.is_due = false;
    return *event;
}

/// Takes the next step of the round; empty if the round is over.
std::optional<ElasticEvent> Loop::advance() {
    switch (at_) {
        case At::place:
            session_->meter.use(ContextScope::of(round_->context).get());
            enter_round();
            at_ = At::round;
            return ElasticEvent::round;
        case At::round:
            // The user has now replaced all objects that referred to earlier rounds.
            past_.clear();
            begin_training();
            break;
        default:
            if (stage_ == Stage::open) {
                throw Error(Errc::invalid_argument, "on_step returned from step " +
                                                        std::to_string(step_) +
                                                        " without commit() or finish()");
            }
            if (stage_ == Stage::finished) {
                conclude();
                return ElasticEvent::finished;
            }
            if (pausing_) {
                give_up_round("the round ends at this step boundary");
                at_boundary_ = true;
                at_ = At::between;
                return std::nullopt;
            }
            look_after_step();
    }
    open_step();
    at_ = At::step;
    return ElasticEvent::step;
}

/// After the end of a round.
void Loop::find_place() {
    registered_.restore_buffers();  // The step that was lost may have changed them.
    if ((at_boundary_ && all_paused_ && leaves_now()) || !find_next_place(at_boundary_)) {
        at_ = At::leaving;
        return;
    }
    at_ = At::place;
}

/// All ranks have finished.
void Loop::conclude() {
    if (link_) {
        // The others may end before this one: broken connections are normal now.
        ContextScope::of(round_->context)->on_break({});
        link_->unguard();
        link_->declare_elastic(false);  // No round may interrupt the rest of the program.
    }
    session_.reset();
}

bool Loop::repairs(const std::exception& error) {
    if (!session_ || !mark_.is_here()) {
        return false;  // The failure of a forked child is not that of the rank.
    }
    if (at_ == At::leaving) {
        session_.reset();
        return false;
    }
    const auto* const known = dynamic_cast<const Error*>(&error);
    const std::string disagreement = known != nullptr ? finish_disagreement(*known) : "";
    if (!disagreement.empty()) {
        if (link_) {
            link_->send(worker_link::Fatal{.kind = worker_link::FatalKind::user_error,
                                           .text = disagreement});
        }
    } else if (known != nullptr && !applying_ && is_loss(*known)) {
        // After an error in `apply` the state would be half changed.
        give_up_round(known->what());
        learn_of_end(*known);
        at_boundary_ = false;
        at_ = At::between;
        return true;
    }
    const std::string what = disagreement.empty() ? error.what() : disagreement;
    tell_failure(what.c_str());
    // Otherwise the others would wait for this rank.
    give_up_round("training has failed on this rank: " + what);
    session_.reset();
    if (!disagreement.empty()) {
        throw Error(Errc::invalid_argument, disagreement);
    }
    return false;
}

/// Reports the failure before the others can notice it, so that the agent knows the cause first. A
/// rank that fails because of the others reports nothing.
void Loop::tell_failure(const char* what) {
    const bool others_have = link_ && (meter_->has_failed() || link_->ended(round_->context.round));
    if (link_ && (fails_by_itself_ || !others_have)) {
        link_->send(worker_link::Fatal{.kind = worker_link::FatalKind::error, .text = what});
    }
}

void Loop::enter_round() {
    const Context& context = round_->context;
    reporter_.begin_round(context.round, *ContextScope::of(context));
    if (link_) {
        link_->guard(context.round, ContextScope::of(context));
        ContextScope::of(context)->on_break([link = std::weak_ptr(link_), round = context.round](
                                                std::uint32_t peer, const std::string& how) {
            if (const auto agent = link.lock()) {
                agent->send({worker_link::PeerLost{.round = round, .peer = peer, .text = how}});
            }
        });
    }
    const Instant began = now();
    Digests held = digests_held();
    const Instant prepared = now();
    form();
    const Instant formed = now();
    bring_state(std::move(held));
    communicator_time_ = formed - prepared;
    state_time_ = (prepared - began) + (now() - formed);
    const bool first = !std::exchange(has_shown_, true);
    round_->shown = true;
    shown_round_ = {
        .context = &context, .group = round_->steps.get(), .step = step_, .first = first};
}

void Loop::form() {
    const Context& context = round_->context;
    round_->steps = ProcessGroup::create(options_.backend, context,
                                         {.timeout = options_.timeout, .name = "elastic"});
    orders_->begin_round();
    GroupOrders::attach(*round_->steps, orders_);
    if (round_->steps->device().kind != DeviceKind::cpu) {
        round_->own_control = ProcessGroup::create(
            "cpu", context, {.timeout = options_.timeout, .name = "elastic-control"});
    }
}

void Loop::begin_training() {
    reporter_.set_phase(link::Phase::training);
    training_began_ = now();
    round_steps_ = 0;
    window_work_ = {};
    stragglers_.emplace(round_->context.world_size, options_.straggler_excess);
    telemetry_.set_slow_ranks({});
    pausing_ = all_paused_ = false;
}

void Loop::open_step() {
    stage_ = Stage::open;
    finishing_ = voting_ = false;
    taken_.reset();
    clock_.open(now(), meter_->waited());
}

/// Whether the error means that peers are lost, so that the round cannot go on.
bool Loop::is_loss(const Error& error) const noexcept {
    switch (error.code()) {
        case Errc::disconnected:
        case Errc::fenced:
        case Errc::deadline_exceeded:
        case Errc::closed:
            return link_ != nullptr;
        default:
            return false;
    }
}

/// Waits until the agent confirms the end of the round. If a worker has died, the agent reports it
/// soon. If only a connection broke, the agent hears that from the workers at its ends, and the
/// round ends for that. Without a daemon the agent reports nothing; then this rank suspends by
/// itself.
void Loop::learn_of_end(const Error& error) {
    const std::uint64_t round = round_->context.round;
    reporter_.suspend();
    if (!link_->await_end(round, after(now(), kEndLimit))) {
        link_->send(worker_link::Remark{
            .text = "rank " + std::to_string(round_->context.rank) +
                    " has lost its peers in round " + std::to_string(round) +
                    ", of whose end nothing was heard, and gives it up: " + error.what()});
    }
}

bool Loop::leaves_now() const noexcept {
    return link_ && link_->leave_wanted(round_->context.round);
}

/// Waits for the next round; false if this node leaves instead.
bool Loop::find_next_place(bool at_boundary) {
    const std::uint64_t round = round_->context.round;
    reporter_.suspend();
    const std::uint64_t held = fresh_ || torn_ ? 0 : step_;
    link_->send(worker_link::Suspended{.round = round, .step = held, .at_boundary = at_boundary});
    const link::AgentLink::Place place = link_->await_place(round);
    if (const auto* const assigned = std::get_if<worker_link::AssignWorker>(&place)) {
        auto next = std::make_unique<Round>(link::context_of(round_->context, *assigned));
        if (round_->shown) {
            past_.push_back(std::move(round_));
        }
        round_ = std::move(next);
        return true;
    }
    if (std::holds_alternative<link::AgentLink::Gone>(place)) {
        throw Error(Errc::disconnected, "the agent that started this worker is gone, after step " +
                                            std::to_string(step_) + " of round " +
                                            std::to_string(round));
    }
    return false;
}

void Loop::give_up_round(const std::string& reason) noexcept {
    if (link_) {
        link_->unguard();
    }
    ContextScope::of(round_->context)->interrupt(reason);
    for (ProcessGroup* const group : {round_->steps.get(), round_->own_control.get()}) {
        if (group != nullptr) {
            group->abort(reason);
        }
    }
}

/// Lets the program save once, if this rank has a state; then training is over.
ElasticEvent Loop::take_leave() {
    const auto end = [&] {
        if (session_->put_off) {
            // A scheduler's signal may come last, where another node was the first to get it.
            session_->put_off->ignore_from_now_on();
        }
        session_.reset();
        return ElasticEvent::left;
    };
    if (std::exchange(has_taken_leave_, true)) {
        return end();
    }
    reporter_.set_phase(link::Phase::leaving);
    if (torn_) {
        throw Error(Errc::system,
                    "this node leaves while this rank has half of a state, which is not saved");
    }
    if (fresh_) {  // It has no state to save.
        return end();
    }
    const auto pause = link_->await_pause(after(now(), kPauseLimit));
    const Duration limit =
        pause && pause->limit_ms > 0 ? std::chrono::milliseconds(pause->limit_ms) : kLeaveLimit;
    leave_ = {.step = step_,
              .reason = pause ? pause->reason : "this node leaves the job",
              .deadline = after(now(), limit)};
    return ElasticEvent::leave;
}

}  // namespace regroup::elastic
