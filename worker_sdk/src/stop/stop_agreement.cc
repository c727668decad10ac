// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/stop/stop_agreement.h"

#include <regroup/error.h>

#include <utility>

#include "worker_sdk/src/base/helper_thread.h"

namespace regroup::stopping {
namespace {

/// How much longer than the ranks' answers the decision may take.
constexpr Duration kMargin = std::chrono::seconds(5);

}  // namespace

StopAgreement::StopAgreement(const Context& context, Hooks hooks, Duration limit)
    : rank_(context.rank),
      serves_store_(context.rank == 0 && !context.agent_store),
      hooks_(std::move(hooks)),
      limit_(limit),
      board_(context),
      registration_(ContextScope::of(context),
                    [own = own_scope_](const std::string& reason) { own->interrupt(reason); }) {
    watch_ = start_helper_thread("regroup-stop", [this] { watch(); });
    try {
        ringer_ = start_helper_thread("regroup-bell", [this] { ring(); });
    } catch (const Error&) {
        own_scope_->interrupt("the thread regroup-bell cannot be started");
        watch_.join();
        throw;
    }
}

StopAgreement::~StopAgreement() {
    end(limit_);
    {
        const std::lock_guard lock(mutex_);
        state_.is_over = true;
    }
    own_scope_->interrupt("the agreement is gone");
    bell_.ring();
    ringer_.join();
    watch_.join();
}

void StopAgreement::end(Duration limit) {
    if (!mark_.is_here()) {
        return;
    }
    std::unique_lock lock(mutex_);
    state_.is_ending = true;
    bell_.ring();
    changed_.wait_for(lock, limit, [this] { return state_.is_through || state_.failure; });
}

void StopAgreement::end_with_process(Duration limit) {
    end(limit);
    if (mark_.is_here()) {
        ringer_.detach();
        watch_.detach();
    }
}

// ---- The program's thread.

void StopAgreement::require_order(std::uint64_t step) const {
    const std::uint64_t next = next_.load();
    if (step + 1 < next) {
        throw Error(Errc::invalid_argument,
                    "stop_requested: step " + std::to_string(step) + " comes after step " +
                        std::to_string(next - 1) +
                        "; steps must not become smaller: count over all epochs");
    }
}

bool StopAgreement::decide(std::uint64_t step) {
    if (!mark_.is_here()) {
        return false;
    }
    std::unique_lock lock(mutex_);
    const bool is_known = changed_.wait_for(lock, limit_ + kMargin, [this] {
        return phase_ == Phase::decided || phase_ == Phase::failed;
    });
    if (!is_known) {
        throw Error(Errc::deadline_exceeded, "stop_requested: the store has not said within " +
                                                 format_duration(limit_ + kMargin) +
                                                 " at which step the ranks stop");
    }
    if (phase_ == Phase::failed) {
        throw Error(state_.failure->code, state_.failure->detail);
    }
    if (step < state_.step) {
        return false;
    }
    lock.unlock();
    hooks_.on_stop();
    return true;
}

// ---- The watch thread.

void StopAgreement::watch() {
    try {
        agree();
    } catch (const std::exception& error) {
        fail(error);
    }
}

void StopAgreement::agree() {
    StopBoard board = board_.connect_again(own_scope_);
    static_cast<void>(board.await("asked", Instant::max()));
    phase_.store(Phase::asked);
    // Later steps than this one wait for the decision: see `requested`.
    const bool answers = claim_answer();
    if (answers) {
        board.answer(next_.load());
    }
    if (!board.await("step", after(now(), limit_))) {
        throw Error(Errc::deadline_exceeded, board.silence(limit_));
    }
    const std::uint64_t step = board.step();
    if (answers) {
        board.count_heard();
        note_through();
    }
    if (serves_store_) {
        // The program may end at once, and the store with it.
        static_cast<void>(board.await("all heard", after(now(), limit_)));
    }
    decided(step);
}

bool StopAgreement::claim_answer() {
    const std::lock_guard lock(mutex_);
    return !std::exchange(state_.is_claimed, true);
}

void StopAgreement::note_through() {
    const std::lock_guard lock(mutex_);
    state_.is_through = true;
    changed_.notify_all();
}

void StopAgreement::decided(std::uint64_t step) {
    {
        const std::lock_guard lock(mutex_);
        state_.step = step;
        phase_ = Phase::decided;
    }
    changed_.notify_all();
    bell_.ring();
}

/// Until a stop is asked for, a failure only says that none can be agreed on. The end of the round
/// is the reason for all failures that follow from it.
void StopAgreement::fail(const std::exception& error) {
    const auto* const known = dynamic_cast<const Error*>(&error);
    Failure failure(known != nullptr ? known->code() : Errc::system,
                    std::string("stop_requested: ") + error.what());
    if (const auto reason = own_scope_->reason()) {
        failure = {Errc::fenced, "stop_requested: " + *reason};
    }
    {
        const std::lock_guard lock(mutex_);
        if (!state_.failure) {
            state_.failure = std::move(failure);
        }
        if (phase_ == Phase::asked || (phase_ == Phase::training && state_.is_asked_here)) {
            phase_ = Phase::failed;
        }
    }
    changed_.notify_all();
    bell_.ring();
}

// ---- The bell thread.

void StopAgreement::ring() {
    net::PollSet poll;
    std::optional<Instant> signalled_until;  // Until then, SIGTERM has asked for a stop.
    const auto is_over = [this] {
        const std::lock_guard lock(mutex_);
        return state_.is_over;
    };
    for (bool is_first = true; !is_over(); is_first = false) {
        signal_.watch(poll);
        bell_.watch(poll);
        try {
            poll.wait(is_first ? now() : signalled_until.value_or(Instant::max()));
            obey_bells(signalled_until);
        } catch (const std::exception& error) {
            fail(error);  // Rings the bell: the next turn sees the failure, and asks no more.
        }
    }
}

void StopAgreement::obey_bells(std::optional<Instant>& signalled_until) {
    const bool is_signalled = signal_.drain();
    static_cast<void>(bell_.drain());
    if (is_signalled && phase_ != Phase::decided && !signalled_until) {
        signalled_until = after(now(), limit_ + kMargin);
    }
    if (is_signalled) {
        ask("rank " + std::to_string(rank_) + " got SIGTERM");
    } else if (hooks_.is_wanted()) {
        ask("the launcher of rank " + std::to_string(rank_) + " asked for a stop");
    }
    std::unique_lock lock(mutex_);
    if (signalled_until && phase_ == Phase::decided) {
        signalled_until.reset();
    } else if (signalled_until && (state_.failure || now() >= *signalled_until)) {
        signalled_until.reset();
        const std::string why =
            state_.failure ? state_.failure->detail : "stop_requested: the store does not answer";
        lock.unlock();
        hooks_.end_by_signal(why);
        lock.lock();
    }
    const bool answers =
        state_.is_ending && !state_.failure && !std::exchange(state_.is_claimed, true);
    lock.unlock();
    if (answers) {
        StopBoard board = board_.connect_again(own_scope_);
        board.answer(next_.load());
        board.count_heard();
        note_through();
    }
}

void StopAgreement::ask(const std::string& why) {
    {
        const std::lock_guard lock(mutex_);
        if (std::exchange(state_.is_asked_here, true)) {
            return;
        }
        if (state_.failure) {
            phase_ = Phase::failed;
            return;
        }
    }
    board_.connect_again(own_scope_).ask(why);
}

}  // namespace regroup::stopping
