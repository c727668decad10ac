// SPDX-License-Identifier: Apache-2.0
//
// The end of the faults, and the time in which the job must then recover.
#include <algorithm>
#include <utility>

#include "rendezvous/core/restart_budget.h"
#include "tests/simulation/simulation.h"

namespace regroup::simulation {

namespace {

constexpr Duration kSpawnMax = std::chrono::seconds(1);
// Margin of the calm phase beyond the policy's own limits: reconnecting, a few round trips, and
// drifting clocks.
constexpr Duration kCalmMargin = std::chrono::seconds(15);

}  // namespace

void Simulation::begin_calm() {
    calm_.begun = true;
    world_.now = std::max(world_.now, calm_.from);
    world_.note([] { return "no more faults"; });
    world_.plan = world_.plan.calm();
    world_.network.set_plan(world_.plan.network);
    world_.network.set_slowness(1);
    for (std::uint32_t host = 0; host < agents_.size(); ++host) {
        hosts_[host].cuts = 0;
        world_.network.heal(world_.now, host);
        if (!agents_[host]->running() && !job_over_) {
            spawn(host, kSpawnMax);
        }
    }
    workers_.severed.reset();
    etcd_.set_down(false);
    for (std::uint32_t index = 0; index < daemons_.size(); ++index) {
        etcd_.cut(index, false);
        daemons_[index]->kill_midway(std::nullopt);
        if (!daemons_[index]->up() && !world_.job.hosted) {
            daemons_[index]->start();
        }
    }
    calm_.until = world_.now + calm_limit();
}

// Time for a silent node to be lost, for workers to stop, for the round to form and for a late node
// to join. All of these may happen twice, for a node that was leaving when the faults stopped.
// Before, rounds that failed fast may have led to the longest back-off.
Duration Simulation::calm_limit() const {
    const rendezvous::JobPolicy& policy = world_.job.policy;
    // A change waits for a step boundary, and perhaps for a hanging worker.
    const Duration elastic_nodes =
        world_.job.elastic
            ? policy.prepare_timeout + 2 * world_.job.step_time + 4 * world_.plan.hang_limit
            : Duration::zero();
    return kCalmMargin + rendezvous::RestartBudget::kDelayLimit +
           2 * (policy.heartbeat_timeout + policy.last_call + policy.grow_after) +
           3 * policy.shutdown_timeout + 3 * world_.plan.lease + 3 * world_.plan.own_work +
           elastic_nodes;
}

// A quarantined node comes back when its window ends. The round that lets it in takes as long as
// any other.
void Simulation::await_returns() {
    const rendezvous::RendezvousCore* core = daemon().job().core();
    const auto aside = std::count_if(agents_.begin(), agents_.end(), [&](const auto& agent) {
        return core != nullptr && agent->running() &&
               core->is_quarantined(core->name_of(agent->node()));
    });
    if (calm_.begun && aside < std::exchange(were_aside_, aside)) {
        calm_.until = std::max(calm_.until, world_.now + calm_limit());
    }
}

}  // namespace regroup::simulation
