// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/plan.h"

#include <array>
#include <cmath>

namespace regroup::simulation {

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

// With this salt, seeds that once failed replay as before.
constexpr std::uint64_t kBusySalt = 0xda61aa6fa9146447ULL;
constexpr std::uint64_t kHouseSalt = 0x627bd630cc498a1fULL;
constexpr std::uint64_t kHealthSalt = 0xcab7b8c09e2311c1ULL;

template <class T, std::size_t N>
T pick(Random& random, const std::array<T, N>& choices) {
    return choices[random.below(N)];
}

void draw_network(Random& random, NetworkPlan& plan) {
    plan.delay = pick<Duration, 4>(
        random, {microseconds(50), microseconds(500), milliseconds(5), milliseconds(40)});
    plan.jitter = plan.delay * static_cast<std::int64_t>(random.below(4));
    plan.straggler = random.chance(0.3) ? 0.01 : 0;
    plan.loss = random.chance(0.2) ? pick<double, 3>(random, {0.005, 0.02, 0.1}) : 0;
    plan.duplication = random.chance(0.2) ? 0.05 : 0;
    plan.reorder = random.chance(0.15);
    plan.partitions_drop = random.chance(0.4);
}

void draw_workers(Random& random, Plan& plan) {
    plan.work_min = pick<Duration, 4>(random, {seconds(1), seconds(30), minutes(5), minutes(40)});
    plan.work_max = plan.work_min * static_cast<std::int64_t>(1 + random.below(8));
    plan.skew_max = pick<Duration, 3>(random, {milliseconds(1), milliseconds(500), seconds(10)});
    plan.failure_interval =
        pick<Duration, 4>(random, {seconds(0), seconds(60), minutes(10), minutes(60)});
    plan.crash_at_start = random.chance(0.2) ? 0.2 : 0;
    plan.start_error = random.chance(0.1) ? 0.05 : 0;
    plan.consequence_max =
        pick<Duration, 3>(random, {milliseconds(20), milliseconds(800), seconds(6)});
    plan.hang = pick<double, 3>(random, {0, 0.2, 1});
    plan.drain_max =
        pick<Duration, 4>(random, {milliseconds(5), milliseconds(300), seconds(5), seconds(40)});
    plan.ignores_term = random.chance(0.3) ? 0.1 : 0;
}

// Drawn from a random stream of its own.
void draw_durability(Random& random, Plan& plan, double density) {
    plan.durability =
        pick<Durability, 5>(random, {Durability::memory, Durability::memory, Durability::journal,
                                     Durability::journal, Durability::replicated});
    plan.lease = pick<Duration, 3>(random, {seconds(1), seconds(3), seconds(10)});
    plan.etcd_delay =
        pick<Duration, 3>(random, {microseconds(300), milliseconds(5), milliseconds(60)});
    plan.skew = pick<Duration, 4>(random, {seconds(0), milliseconds(80), seconds(2), -seconds(2)});
    for (const FaultKind kind :
         {FaultKind::daemon_killed_midway, FaultKind::etcd_cut, FaultKind::etcd_away}) {
        const bool possible = kind == FaultKind::daemon_killed_midway
                                  ? plan.durability != Durability::memory
                                  : plan.durability == Durability::replicated;
        if (random.chance(density) && possible) {
            plan.faults.push_back(kind);
        }
    }
}

void draw_elastic_nodes(Random& random, Plan& plan, double density) {
    plan.attach_max = pick<Duration, 3>(random, {milliseconds(10), milliseconds(300), seconds(3)});
    plan.suspension_max =
        pick<Duration, 3>(random, {milliseconds(5), milliseconds(250), seconds(8)});
    plan.never_suspends = random.chance(0.2) ? 0.05 : 0;
    plan.dies_of_peers = random.chance(0.3) ? 0.3 : 0;
    plan.apply_max = pick<Duration, 4>(
        random, {microseconds(200), milliseconds(5), milliseconds(50), seconds(1)});
    plan.hang_limit = pick<Duration, 2>(random, {seconds(2), seconds(10)});
    for (const FaultKind kind : {FaultKind::worker_hung, FaultKind::operator_drain}) {
        if (random.chance(density)) {
            plan.faults.push_back(kind);
        }
    }
}

}  // namespace

const char* to_string(FaultKind kind) noexcept {
    static constexpr std::array<const char*, kFaultKinds> kNames{
        "agent killed",       "host lost",     "partition",       "deaf agent",
        "mute agent",         "agent paused",  "daemon paused",   "connection broken",
        "connection doubled", "daemon killed", "agent signalled", "worker killed",
        "operator stop",      "slow network",  "mass outage",     "daemon killed midway",
        "etcd cut",           "etcd away",     "worker hung",     "operator drain",
        "peers severed"};
    return kNames[static_cast<std::size_t>(kind)];
}

Plan Plan::from_seed(std::uint64_t seed) {
    Random random(seed);
    Plan plan;
    plan.hosts = static_cast<std::uint32_t>(2 + random.below(7));
    const double density = pick<double, 4>(random, {0.05, 0.2, 0.4, 0.8});
    for (std::size_t kind = 0; kind <= static_cast<std::size_t>(FaultKind::mass_outage); ++kind) {
        // An operator's stop ends the job, so it is rare.
        const bool rare = kind == static_cast<std::size_t>(FaultKind::operator_stop);
        if (random.chance(rare ? density / 4 : density)) {
            plan.faults.push_back(static_cast<FaultKind>(kind));
        }
    }
    plan.fault_interval =
        pick<Duration, 4>(random, {seconds(4), seconds(20), minutes(1), minutes(5)});
    plan.outage_max =
        pick<Duration, 4>(random, {milliseconds(700), seconds(4), seconds(20), minutes(2)});
    draw_network(random, plan.network);
    plan.drift_ppm_max = random.chance(0.5) ? pick<std::int64_t, 3>(random, {100, 5000, 50000}) : 0;
    draw_workers(random, plan);
    Random more(seed ^ 0xa0761d6478bd642fULL);
    draw_durability(more, plan, density);
    draw_elastic_nodes(more, plan, density);
    Random connections(seed ^ 0x8ebc6af09c88c6e3ULL);
    if (connections.chance(density)) {
        plan.faults.push_back(FaultKind::peers_severed);
    }
    Random others(seed ^ 0xe7037ed1a0b428dbULL);
    if (others.chance(0.4)) {
        plan.attaches = others.chance(0.6);
    }
    Random busy(seed ^ kBusySalt);
    if (busy.chance(0.2)) {
        plan.own_work = pick<Duration, 3>(busy, {seconds(4), seconds(40), minutes(3)});
    }
    Random houses(seed ^ kHouseSalt);
    plan.housed = plan.durability == Durability::journal && houses.chance(0.25);
    Random checks(seed ^ kHealthSalt);
    if (checks.chance(0.2)) {
        plan.health_check = pick<Duration, 3>(checks, {milliseconds(50), seconds(1), seconds(60)});
        plan.unhealthy = checks.chance(0.5) ? 0.05 : 0;
    }
    return plan;
}

Plan Plan::calm() const {
    Plan plan = *this;
    plan.faults.clear();
    plan.network.jitter = Duration::zero();
    plan.network.straggler = plan.network.loss = plan.network.duplication = 0;
    plan.network.reorder = false;
    plan.failure_interval = Duration::zero();
    plan.crash_at_start = plan.start_error = 0;
    plan.never_suspends = plan.dies_of_peers = 0;
    plan.work_min = plan.work_max = std::chrono::hours(24);
    plan.endless = true;
    return plan;
}

void draw_budgets(Random& random, rendezvous::JobPolicy& policy) {
    rendezvous::Budgets& budgets = policy.budgets;
    budgets.no_progress_max = pick<std::uint32_t, 3>(random, {0, 0, 5});
    budgets.node_failures_max = pick<std::uint32_t, 3>(random, {0, 0, 3});
    budgets.node_failures_window = pick<Duration, 2>(random, {seconds(20), minutes(10)});
    budgets.refill_steps = random.chance(0.2) ? 20 : 0;
    if (random.chance(0.2)) {
        budgets.hangs = 2;
    }
    if (random.chance(0.1)) {
        budgets.losses = 5;
    }
    if (random.chance(0.3)) {
        policy.on_exit = {{64, rendezvous::Reaction::fail},
                          {75, rendezvous::Reaction::retry},
                          {76, rendezvous::Reaction::replace_node}};
    }
}

JobPlan JobPlan::draw(Random& random, Random& second, const Plan& plan) {
    JobPlan job;
    rendezvous::JobPolicy& policy = job.policy;
    policy.nodes_min = static_cast<std::uint32_t>(1 + random.below(plan.hosts));
    policy.nodes_max =
        random.chance(0.4)
            ? policy.nodes_min
            : static_cast<std::uint32_t>(policy.nodes_min +
                                         random.below(plan.hosts - policy.nodes_min + 2));
    policy.restarts_max = pick<std::uint32_t, 5>(random, {0, 1, 3, 20, 1000});
    policy.last_call =
        pick<Duration, 4>(random, {seconds(0), milliseconds(500), seconds(3), seconds(10)});
    policy.heartbeat_timeout = pick<Duration, 5>(
        random, {milliseconds(1500), seconds(3), seconds(3), seconds(6), seconds(10)});
    policy.shutdown_timeout =
        pick<Duration, 4>(random, {seconds(0), milliseconds(500), seconds(5), seconds(30)});
    policy.grow_after = pick<Duration, 3>(random, {seconds(0), seconds(5), seconds(60)});
    policy.program = "train";
    const bool mixed = random.chance(0.3);
    const bool numbered = random.chance(0.2);
    const auto workers = static_cast<std::uint32_t>(1 + random.below(3));
    for (std::uint32_t host = 0; host < plan.hosts; ++host) {
        job.workers.push_back(mixed ? static_cast<std::uint32_t>(1 + random.below(3)) : workers);
        job.slots.push_back(numbered && host < policy.nodes_max ? std::optional(host)
                                                                : std::nullopt);
    }
    job.join_timeout = pick<Duration, 3>(random, {minutes(2), minutes(10), minutes(10)});
    job.start_spread = pick<Duration, 3>(random, {milliseconds(100), seconds(5), minutes(1)});
    job.elastic = random.chance(0.5);
    job.step_time =
        pick<Duration, 4>(random, {milliseconds(300), seconds(2), seconds(5), seconds(20)});
    draw_budgets(random, policy);
    policy.prepare_timeout = pick<Duration, 2>(random, {seconds(8), minutes(2)});
    policy.standbys_max = random.chance(0.5) ? static_cast<std::uint32_t>(random.below(3)) : 0;
    policy.regroup_window =
        pick<Duration, 4>(random, {seconds(0), milliseconds(200), milliseconds(200), seconds(1)});
    job.hosted = plan.housed || (plan.durability == Durability::memory && second.chance(0.4));
    Random order = second;  // A copy, so that old seeds replay as before.
    using rendezvous::RankOrder;
    policy.rank_order = pick<RankOrder, 4>(order, {RankOrder::automatic, RankOrder::automatic,
                                                   RankOrder::joined, RankOrder::topology});
    for (std::uint32_t host = 0; host < plan.hosts; ++host) {
        const bool has_key = policy.rank_order == RankOrder::topology && order.chance(0.8);
        job.rank_keys.push_back(
            has_key ? "s" + std::to_string(order.below(2)) + "." + std::to_string(host) : "");
    }
    return job;
}

Duration between(Random& random, Duration low, Duration high) {
    if (high <= low) {
        return low;
    }
    return low + Duration(static_cast<std::int64_t>(
                     random.below(static_cast<std::uint64_t>((high - low).count()) + 1)));
}

Duration exponential(Random& random, Duration mean) {
    const double factor = std::min(8.0, -std::log(1.0 - random.unit()));
    return Duration(static_cast<std::int64_t>(static_cast<double>(mean.count()) * factor));
}

}  // namespace regroup::simulation
