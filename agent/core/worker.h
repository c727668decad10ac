// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "rendezvous/core/messages.h"

namespace regroup::agent {

using rendezvous::RoundId;

/// Where one worker of a node stands.
///
///     state       what it is                          leaves it by
///     gone        no process                          LaunchWorkers -> training,
///                                                     PrestartWorkers -> idle
///     idle        was started ahead of a round        AssignWorkers -> training
///     training    has a place in a round              EndRound -> suspending, its own word that it
///                                                     is out -> suspended
///     suspending  was told that its round is over     its word that it is out -> suspended
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

/// A node's order to all its workers.
enum class Wanted : std::uint8_t {
    keep,  ///< Go on: train in the round, or wait for one.
    out,   ///< Leave the round, which is over.
    save,  ///< Save the state at once, and end: the node leaves.
    end,   ///< End: the node quits.
};

/// The next order for one worker.
enum class Order : std::uint8_t {
    none,
    suspend,    ///< EndRound: it keeps its process.
    terminate,  ///< A signal that it may handle.
    save,       ///< It has been told so by PauseWorkers.
    kill,       ///< SIGKILL: it trains nothing, so that nothing is lost.
};

/// One worker's process.
struct Worker {
    WorkerState state = WorkerState::gone;
    RoundId launched_in = RoundId::none;  ///< None: ahead of a round.
    /// The last round in which it had a place. None: it has had none, or is ending and out of it.
    RoundId round = RoundId::none;
    bool elastic = false;    ///< It keeps its process when rounds change.
    bool may_wait = false;   ///< Another process like it can be started ahead of a round.
    std::uint64_t step = 0;  ///< Committed, by the time it was suspended.
    int signal = 0;          ///< By which it was asked to end.
    /// Why it was killed, if the round hung on it.
    std::optional<rendezvous::EndWorker> hang{};

    [[nodiscard]] bool alive() const noexcept { return state != WorkerState::gone; }
    /// A round may begin or end without hearing of it.
    [[nodiscard]] bool is_out() const noexcept {
        return state == WorkerState::gone || state == WorkerState::idle ||
               state == WorkerState::suspended || state == WorkerState::saving;
    }
    [[nodiscard]] bool in_round() const noexcept { return !is_out() && round != RoundId::none; }
    /// Alive, and has had a place in a round.
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
