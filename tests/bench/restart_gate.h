// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "agent/process/unique_fd.h"
#include "tests/bench/restart_hello.h"

namespace regroup::bench {

/// Where the workers of the restart benchmark report. Each keeps its connection open for as long as
/// it lives, so the gate knows without polling who is there.
class RestartGate {
   public:
    using Time = std::chrono::steady_clock::time_point;

    /// Listens on a new socket at `path`. A failure ends the program.
    explicit RestartGate(const std::string& path);

    /// Waits until exactly `count` workers are there and all of them began after `since`. False if
    /// that has not come about by `deadline`.
    [[nodiscard]] bool wait_for_round(std::size_t count, Time since, Time deadline);

    /// Takes in arrivals and departures until `deadline`.
    void watch_until(Time deadline);

    /// Tells those who began by `since` that a peer of theirs is gone, as a collective would: they
    /// end with a failure. Before that, waits until at most `count` workers are left; false if that
    /// has not come about by `deadline`.
    [[nodiscard]] bool break_off(std::size_t count, Time since, Time deadline);

    /// When the last of those who are there began.
    [[nodiscard]] Time last_start() const;
    /// The pid of the worker with this rank; 0 if it is not there.
    [[nodiscard]] int pid_of(int rank) const;
    [[nodiscard]] std::size_t count() const { return workers_.size(); }

    /// Lets all workers go, who then end with success.
    void open();

   private:
    [[nodiscard]] bool take_in(Time deadline);

    agent::UniqueFd listener_;
    std::map<int, agent::UniqueFd> connections_;  ///< By their number.
    std::map<int, RestartHello> workers_;         ///< By connection.
};

}  // namespace regroup::bench
