// SPDX-License-Identifier: Apache-2.0
//
// A launcher that runs the daemon of its job: daemon and agent share one process.
#include "agent/text/cause_text.h"
#include "rendezvous/base/exit_code.h"
#include "tests/simulation/simulation.h"

namespace regroup::simulation {

namespace {

constexpr Duration kLingerInterval = std::chrono::milliseconds(100);
constexpr Duration kFlushLimit = std::chrono::seconds(2);

}  // namespace

void Simulation::begin_hosting() {
    lingers_.reset();
    SimulatedDaemon& first = *daemons_.front();
    if (world_.job.hosted) {
        if (first.up()) {
            first.kill();
        }
    } else if (!first.up()) {
        first.start();
    }
}

// As `regroup run` does: the launcher tells the other nodes of the end, or waits for nodes that are
// about to leave, or closes the job because it ends, unless the job is kept.
void Simulation::host_ended() {
    SimulatedDaemon& first = *daemons_.front();
    const std::optional<agent::Quit>& quit = agents_.front()->last_quit();
    if (!quit) {
        if (first.up()) {
            first.kill();
        }
        return;
    }
    lingers_ = text_of(quit->reason);
    const bool waits = quit->exit_code == kExitRequeue && !quit->verdict;
    const Duration limit = quit->verdict ? kFlushLimit
                           : waits       ? world_.job.policy.shutdown_timeout
                                         : Duration::zero();
    on_host_lingers(world_.now + limit);
}

void Simulation::on_host_lingers(Instant until) {
    SimulatedDaemon& first = *daemons_.front();
    if (!first.up()) {
        lingers_.reset();  // It was killed meanwhile.
    }
    if (!lingers_) {
        return;
    }
    if (first.job().closed() && world_.now < until && first.job().has_sessions()) {
        until = std::min(until, world_.now + kFlushLimit);
    } else if (!first.job().has_sessions() || world_.now >= until) {
        if (!first.job().closed() && !world_.plan.housed) {
            world_.tell([&](Checker& c) { c.on_trouble(world_.now, world_.now); });
            first.operate("stopped by node a", rendezvous::StopRequested{"node a", *lingers_});
            job_over_ = job_over_ || job_is_closed();
        }
        lingers_.reset();
        first.kill();
        return;
    }
    world_.queue.push(world_.now + kLingerInterval, EventKind::host_lingers, 0,
                      static_cast<std::uint64_t>(until.time_since_epoch().count()));
}

}  // namespace regroup::simulation
