// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "rendezvous/core/messages.h"

namespace regroup::agent {

using rendezvous::RoundId;

/// The state of one worker of a node.
///
///     state       what it is                          leaves it by
///     gone        no process                          LaunchWorkers -> training,
///                                                     PrestartWorkers -> idle
///     idle        was started ahead of a round        AssignWorkers -> training
///     training    has a place in a round              EndRound -> suspending, its message that it
///                                                     is out -> suspended
///     suspending  was told that its round is over     its message that it is out -> suspended
///     suspended   out of its round, keeps its state   AssignWorkers -> training,
///                                                     PauseWorkers -> saving
///     saving      saves its state, and will end       its end
///     ending      was sent a signal to end it         its end
///
/// The end of its process makes any worker `gone`.
enum class WorkerState : std::uint8_t {
    gone,
    idle,
    training,
    suspending,
    suspended,
    saving,
    ending,
};

/// The target for all workers of a node.
enum class Wanted : std::uint8_t {
    keep,  ///< Train in the round, or wait for one.
    out,   ///< Leave the round, which is over.
    save,  ///< Save the state at once, and end: the node leaves.
    end,   ///< End: the node quits.
};

/// The next order for one worker.
enum class Order : std::uint8_t {
    none,
    suspend,    ///< EndRound. The worker keeps its process.
    terminate,  ///< A signal that the worker may handle.
    save,       ///< PauseWorkers has told the worker.
    kill,       ///< SIGKILL. The worker is in no round, so nothing is lost.
};

/// One worker's process.
struct Worker {
    WorkerState state = WorkerState::gone;
    RoundId launched_in = RoundId::none;  ///< None: ahead of a round.
    /// The last round in which it had a place. None: it had no place, or has left it to end.
    RoundId round = RoundId::none;
    bool elastic = false;    ///< It keeps its process when rounds change.
    bool may_wait = false;   ///< Another process like it can be started ahead of a round.
    std::uint64_t step = 0;  ///< The committed step when it suspended.
    int signal = 0;          ///< The signal that asked it to end.
    /// The reason why it was killed, if the round hung on it.
    std::optional<rendezvous::EndWorker> hang{};

    [[nodiscard]] bool alive() const noexcept { return state != WorkerState::gone; }
    /// True if a round can begin or end without waiting for this worker.
    [[nodiscard]] bool is_out() const noexcept {
        return state == WorkerState::gone || state == WorkerState::idle ||
               state == WorkerState::suspended || state == WorkerState::saving;
    }
    [[nodiscard]] bool in_round() const noexcept { return !is_out() && round != RoundId::none; }
    /// True if the worker is alive and has had a place in a round.
    [[nodiscard]] bool holds_state() const noexcept { return alive() && round != RoundId::none; }
};

///                 keep   out          save         end
///     idle        -      -            kill         kill
///     training    -      suspend *)   suspend *)   terminate
///     suspending  -      -            -            terminate
///     suspended   -      -            save         kill
///     saving      -      -            -            kill
///     ending      -      -            -            -
///
///     *) terminate, if it is not elastic
[[nodiscard]] constexpr Order next_order(const Worker& worker, Wanted wanted) noexcept {
    const bool ends = wanted == Wanted::end;
    switch (worker.state) {
        case WorkerState::idle:
            return ends || wanted == Wanted::save ? Order::kill : Order::none;
        case WorkerState::training:
            return wanted == Wanted::keep    ? Order::none
                   : ends || !worker.elastic ? Order::terminate
                                             : Order::suspend;
        case WorkerState::suspending:
            return ends ? Order::terminate : Order::none;
        case WorkerState::suspended:
            return ends ? Order::kill : wanted == Wanted::save ? Order::save : Order::none;
        case WorkerState::saving:
            return ends ? Order::kill : Order::none;
        case WorkerState::gone:
        case WorkerState::ending:
            return Order::none;
    }
    return Order::none;
}

}  // namespace regroup::agent
