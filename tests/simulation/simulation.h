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
    Duration safety = std::chrono::hours(1);  ///< How long faults occur.
    std::size_t trace_lines = 0;  ///< Lines of the text trace that are kept; 0 for none.
    /// See World::swallow.
    std::function<bool(const rendezvous::FromDaemon&)> swallow;
};

struct RunReport {
    std::optional<std::string> violation;  ///< The sentence of the checker that failed first.
    std::uint64_t hash = 0;                ///< Of all events, in order.
    std::uint64_t steps = 0;               ///< Of all cores, agents' and daemons'.
    std::uint64_t rounds = 0;
    std::uint64_t jobs = 0;
    std::uint64_t faults = 0;
    std::deque<std::string> trace;
};

/// One run: daemons and hosts, fully determined by one seed. For `safety`, the faults that the seed
/// allows occur. Then faults stop, and the job must recover.
class Simulation {
   public:
    explicit Simulation(const Options& options);

    [[nodiscard]] RunReport run();

   private:
    void handle(const Happening& event);
    /// True if the receiver of `event` is paused. The event is then scheduled again.
    bool postponed(const Happening& event);
    void start_job();
    void spawn(std::uint32_t host, Duration within);
    void observe();
    void apply_fault();
    void strike_host(FaultKind kind, std::uint32_t host, Duration outage);
    void strike_daemon(FaultKind kind, Duration outage);
    void heal(std::uint32_t subject);

    // The launcher that runs the daemon (hosting.cc).

    [[nodiscard]] bool is_host(std::uint32_t host) const { return world_.job.hosted && host == 0; }
    /// A job begins. Its daemon runs already, or starts with its launcher.
    void begin_hosting();
    /// The agent of the launcher that runs the daemon has ended.
    void host_ended();
    void on_host_lingers(Instant until);
    void disturb_all();
    /// The leading daemon, otherwise the first.
    [[nodiscard]] SimulatedDaemon& daemon() const;
    [[nodiscard]] bool job_is_closed() const;

    // Calm (calm.cc).

    void begin_calm();
    [[nodiscard]] Duration calm_limit() const;
    /// Extends the calm until the quarantined nodes are back.
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
    struct HostState {
        Instant undisturbed_since = Instant::max();
        bool was_running = false;
        std::uint32_t cuts = 0;  ///< Number of partitions that it is in.
    };
    std::vector<HostState> hosts_;
    std::ptrdiff_t were_aside_ = 0;  ///< Number of quarantined nodes at the last tick.
    View view_;
    RunReport report_;  ///< So far; the number of its jobs numbers them.
    bool job_over_ = false;
    bool new_job_due_ = false;
    struct Calm {
        bool begun = false;
        Instant from{};
        Instant until = Instant::max();
    };
    Calm calm_;
    std::optional<std::string> lingers_;  ///< Why the daemon lingers after the end of its agent.
    rendezvous::RoundId last_round_ = rendezvous::RoundId::none;
};

/// Runs one seed; if it fails, runs it again with a text trace of the last `trace_lines`.
[[nodiscard]] RunReport run_seed(const Options& options);

}  // namespace regroup::simulation
