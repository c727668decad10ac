// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/simulation/simulated_agent.h"
#include "tests/simulation/simulated_daemon.h"
#include "tests/simulation/workers.h"
#include "tests/simulation/world.h"

namespace regroup::simulation {

struct Options {
    std::uint64_t seed = 1;
    Duration safety = std::chrono::hours(1);  ///< How long things go wrong.
    std::size_t trace_lines = 0;              ///< Kept of the text trace; 0 for none.
    /// See World::swallow.
    std::function<bool(const rendezvous::FromDaemon&)> swallow;
};

struct RunReport {
    std::optional<std::string> violation;  ///< The sentence of the checker that failed first.
    std::uint64_t hash = 0;                ///< Of everything that happened, in order.
    std::uint64_t steps = 0;               ///< Of either core.
    std::uint64_t rounds = 0;
    std::uint64_t jobs = 0;
    std::uint64_t faults = 0;
    std::deque<std::string> trace;
};

/// One run: a daemon and some hosts, decided by one seed down to the last delay. First everything
/// that the seed allows goes wrong for `safety`; then faults stop, and the job must come right.
class Simulation {
   public:
    explicit Simulation(const Options& options);

    [[nodiscard]] RunReport run();

   private:
    void handle(const Happening& event);
    /// True if the one whom `event` is for is paused; then it will come again later.
    bool postponed(const Happening& event);
    void start_job();
    void spawn(std::uint32_t host, Duration within);
    void observe();
    void apply_fault();
    void strike_host(FaultKind kind, std::uint32_t host, Duration outage);
    void strike_daemon(FaultKind kind, Duration outage);
    void heal(std::uint32_t subject);

    // The launcher that serves the rendezvous (hosting.cc).

    [[nodiscard]] bool is_host(std::uint32_t host) const { return world_.job.hosted && host == 0; }
    /// A job begins: its daemon runs already, or comes with its host.
    void begin_hosting();
    /// The agent beside the rendezvous has ended.
    void host_ended();
    void on_host_lingers(Instant until);
    void disturb_all();
    /// The one in charge, else the first.
    [[nodiscard]] SimulatedDaemon& daemon() const;
    [[nodiscard]] bool job_is_closed() const;

    // Calm (calm.cc).

    void begin_calm();
    [[nodiscard]] Duration calm_limit() const;
    /// Calm lasts until the nodes are back that had been set aside.
    void await_returns();

    void tick();
    void look(View& view);

    Options options_;
    World world_;
    Workers workers_;
    JobLog log_;
    SimulatedEtcd etcd_;
    std::vector<std::unique_ptr<SimulatedDaemon>> daemons_;
    std::vector<std::unique_ptr<SimulatedAgent>> agents_;
    std::vector<Instant> undisturbed_since_;
    std::vector<bool> was_running_;
    std::ptrdiff_t were_aside_ = 0;    ///< So many nodes, at the last tick.
    std::vector<std::uint32_t> cuts_;  ///< How many partitions each host is in.
    View view_;
    std::uint64_t epoch_ = 0;  ///< The job's number.
    bool job_over_ = false;
    bool new_job_due_ = false;
    bool calm_ = false;
    std::optional<std::string> lingers_;  ///< The rendezvous does, after an agent's end. Why.
    Instant calm_from_{};
    Instant calm_until_ = Instant::max();
    rendezvous::RoundId last_round_ = rendezvous::RoundId::none;
    std::uint64_t faults_ = 0;
    std::uint64_t rounds_ = 0;
};

/// Runs one seed; if it fails, runs it again with a text trace of the last `trace_lines`.
[[nodiscard]] RunReport run_seed(const Options& options);

}  // namespace regroup::simulation
