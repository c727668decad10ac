// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "rendezvous/files/unique_fd.h"
#include "tests/bench/restart_hello.h"

namespace regroup::bench {

/// The workers of the restart benchmark report to this gate. Each keeps its connection open while
/// it lives, so the gate knows the living workers without polling.
class RestartGate {
   public:
    using Time = std::chrono::steady_clock::time_point;

    /// Listens on a new socket at `path`. A failure ends the program.
    explicit RestartGate(const std::string& path);

    /// Waits until exactly `count` workers are connected and all of them began after `since`. False
    /// at `deadline`.
    [[nodiscard]] bool wait_for_round(std::size_t count, Time since, Time deadline);

    /// Handles new and closed connections until `deadline`.
    void watch_until(Time deadline);

    /// Waits until at most `count` workers are left; false at `deadline`. Then tells workers that
    /// began by `since` that a peer is lost, as a collective would. They end with a failure.
    [[nodiscard]] bool break_off(std::size_t count, Time since, Time deadline);

    /// When the last of the connected workers began.
    [[nodiscard]] Time last_start() const;
    /// The pid of the worker with this rank; 0 if it is not connected.
    [[nodiscard]] int pid_of(int rank) const;
    [[nodiscard]] std::size_t count() const { return workers_.size(); }

    /// Releases all workers, which then end with success.
    void open();

   private:
    [[nodiscard]] bool take_in(Time deadline);

    UniqueFd listener_;
    std::map<int, UniqueFd> connections_;  ///< By their number.
    std::map<int, RestartHello> workers_;  ///< By connection.
};

}  // namespace regroup::bench
