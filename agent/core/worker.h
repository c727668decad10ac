// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "rendezvous/core/messages.h"

namespace regroup::agent {

using rendezvous::RoundId;

/// The state of one worker of a node. docs/design.md says which state follows which.
enum class WorkerState : std::uint8_t {
    gone,        ///< It has no process.
    idle,        ///< It was started ahead of a round.
    training,    ///< It has a place in a round.
    suspending,  ///< It was told that its round is over; or to stop, if it asks for that.
    suspended,   ///< It is out of its round, and keeps its state.
    saving,      ///< It saves its state, and will end.
    ending,      ///< It was sent a signal to end it.
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
    bool stops = false;      ///< It asks in each step whether to stop.
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

[[nodiscard]] constexpr Order next_order(const Worker& worker, Wanted wanted) noexcept {
    using enum Order;
    constexpr Order kOrders[][4] = {
        // keep, out, save, end
        {none, none, none, none},             // gone
        {none, none, kill, kill},             // idle
        {none, suspend, suspend, terminate},  // training
        {none, none, none, terminate},        // suspending
        {none, none, save, kill},             // suspended
        {none, none, none, kill},             // saving
        {none, none, none, none},             // ending
    };
    const Order order = kOrders[static_cast<int>(worker.state)][static_cast<int>(wanted)];
    return order == suspend && !worker.elastic ? terminate : order;
}

}  // namespace regroup::agent
