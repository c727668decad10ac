// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/simulation.h"

#include <algorithm>
#include <csignal>
#include <utility>

namespace regroup::simulation {

namespace {

constexpr Duration kTick = std::chrono::seconds(1);
// A new agent starts only after the workers of the old one are certainly gone.
constexpr Duration kRespawnMin = std::chrono::milliseconds(300);
constexpr Duration kNewJobPause = std::chrono::seconds(1);
}  // namespace

Simulation::Simulation(const Options& options)
    : options_(options),
      world_(options.seed, options.trace_lines),
      workers_(world_),
      etcd_(world_, log_),
      hosts_(world_.plan.hosts) {
    world_.checkers = make_all_checkers();
    world_.swallow = options.swallow;
    for (std::uint32_t index = 0; index < world_.plan.daemons(); ++index) {
        daemons_.push_back(std::make_unique<SimulatedDaemon>(world_, log_, etcd_, index));
    }
    for (std::uint32_t host = 0; host < world_.plan.hosts; ++host) {
        agents_.push_back(std::make_unique<SimulatedAgent>(world_, workers_, host));
    }
}

RunReport Simulation::run() {
    for (const auto& daemon : daemons_) {
        daemon->start();
    }
    start_job();
    world_.queue.push(world_.now + kTick, EventKind::tick);
    if (!world_.plan.faults.empty()) {
        world_.queue.push(world_.now + exponential(world_.random, world_.plan.fault_interval),
                          EventKind::fault);
    }
    calm_.from = kStart + options_.safety;
    for (bool over = false; !over;) {
        if (!calm_.begun && world_.queue.next_at() >= calm_.from) {
            begin_calm();
        }
        if (calm_.begun && world_.queue.next_at() >= calm_.until) {
            look(view_);
            world_.tell([&](Checker& c) { c.on_calm(world_.now, view_); });
            over = true;
        } else {
            handle(world_.queue.pop());
        }
        for (const auto& checker : world_.checkers) {
            if (checker->violation()) {
                report_.violation = checker->violation();
                over = true;
            }
        }
    }
    world_.note([&] { return "! " + report_.violation.value_or("all invariants hold"); });
    report_.hash = world_.trace.hash();
    report_.steps = world_.steps;
    report_.trace = world_.trace.lines();
    return report_;
}

bool Simulation::postponed(const Happening& event) {
    Instant until{};
    switch (event.kind) {
        case EventKind::connected:
        case EventKind::agent_timer:
        case EventKind::store_offer:
        case EventKind::second_signal:
            until = agents_[event.subject]->uptime().paused_until;
            break;
        case EventKind::worker_word:
            until = agents_[workers_.words[event.subject].host]->uptime().paused_until;
            break;
        case EventKind::daemon_timer:
        case EventKind::daemon_duty:
        case EventKind::daemon_sweep:
        case EventKind::daemon_read:
            until = daemons_[event.subject]->uptime().paused_until;
            break;
        case EventKind::etcd_answer:
            until = daemons_[etcd_.peek(event.subject).daemon]->uptime().paused_until;
            break;
        case EventKind::packet: {
            const Arrival& packet = world_.network.peek(event.subject);
            const Connection& connection = world_.network.connection(packet.connection);
            until = packet.direction == Direction::to_daemon
                        ? daemons_[connection.daemon]->uptime().paused_until
                        : agents_[connection.host]->uptime().paused_until;
            break;
        }
        default:
            break;
    }
    if (until <= event.at) {
        return false;
    }
    world_.queue.push(until, event.kind, event.subject, event.tag);
    return true;
}

void Simulation::handle(const Happening& event) {
    world_.now = event.at;
    if (postponed(event)) {
        return;
    }
    world_.trace.mix(static_cast<std::uint64_t>(event.at.time_since_epoch().count()));
    world_.trace.mix(static_cast<std::uint64_t>(event.kind) << 32U | event.subject);
    std::uint32_t host = event.subject;
    switch (event.kind) {
        case EventKind::connected:
            agents_[host]->on_connected(event.tag, daemons_[agents_[host]->link().endpoint]->up());
            break;
        case EventKind::packet:
            if (std::optional<Arrival> arrival = world_.network.take(world_.now, event.subject)) {
                const Connection& connection = world_.network.connection(arrival->connection);
                host = connection.host;
                if (arrival->direction == Direction::to_daemon) {
                    daemons_[connection.daemon]->on_arrival(std::move(*arrival));
                } else {
                    agents_[host]->on_arrival(std::move(*arrival));
                }
            }
            break;
        case EventKind::agent_timer:
        case EventKind::store_offer:
        case EventKind::second_signal:
            agents_[host]->on_due(event.kind, event.tag);
            break;
        case EventKind::daemon_timer:
        case EventKind::daemon_duty:
        case EventKind::daemon_sweep:
        case EventKind::daemon_read:
            daemons_[event.subject]->on_due(event.kind, event.tag);
            break;
        case EventKind::daemon_return:
            if (!daemons_[event.subject]->up() && !world_.job.hosted) {
                daemons_[event.subject]->start();
            }
            break;
        case EventKind::etcd_call:
            etcd_.on_arrival(event.subject);
            break;
        case EventKind::etcd_answer:
            if (std::optional<EtcdCall> call = etcd_.take(event.subject)) {
                daemons_[call->daemon]->on_etcd_answer(std::move(*call));
            }
            break;
        case EventKind::worker_end:
            on_worker_end(workers_, host, event.tag);
            break;
        case EventKind::worker_word: {
            const WorkerWord word = take_word(workers_, event.subject);
            host = word.host;
            agents_[host]->on_worker_word(word);
            break;
        }
        case EventKind::worker_ready:
            on_worker_ready(workers_, host, event.tag);
            break;
        case EventKind::worker_suspends:
            on_worker_suspends(workers_, host, event.tag);
            break;
        case EventKind::worker_apply:
            on_worker_apply(workers_, host, event.tag);
            break;
        case EventKind::group_formed:
            on_group_formed(workers_, event.subject);
            break;
        case EventKind::group_vote:
            on_group_vote(workers_, event.subject);
            break;
        case EventKind::group_standstill:
            on_group_standstill(workers_, event.subject);
            break;
        case EventKind::group_severed:
            on_group_severed(workers_, event.subject);
            break;
        case EventKind::worker_bereft:
            on_worker_bereft(workers_, host, event.tag);
            break;
        case EventKind::last_word:
            agents_[host]->warden().on_arrival(
                [&](std::uint32_t endpoint) { return daemons_[endpoint]->up(); });
            break;
        case EventKind::host_lingers:
            on_host_lingers(Instant(Duration(static_cast<Duration::rep>(event.tag))));
            break;
        case EventKind::spawn:
            if (is_host(host) && lingers_) {
                spawn(host, kTick);  // The port is still in use.
                break;
            }
            // A node may also join a job that has ended: the daemon must tell it so.
            if (event.tag == report_.jobs && !agents_[host]->running() &&
                (!job_over_ || (!calm_.begun && !new_job_due_ && world_.random.chance(0.5)))) {
                if (is_host(host) && !daemons_.front()->up()) {
                    daemons_.front()->start();
                }
                agents_[host]->start();
            }
            break;
        case EventKind::heal:
            heal(event.subject);
            break;
        case EventKind::fault:
            apply_fault();
            break;
        case EventKind::new_job:
            start_job();
            break;
        case EventKind::tick:
            tick();
            break;
    }
    observe();
}

// Follow-ups of the last event, whichever part caused it.
void Simulation::observe() {
    const rendezvous::RendezvousCore* core = daemon().job().core();
    if (core != nullptr && core->round() != last_round_) {
        last_round_ = core->round();
        ++report_.rounds;
    }
    // The launcher died while it wrote.
    if (world_.plan.housed && agents_.front()->running() && !daemons_.front()->up()) {
        agents_.front()->kill();
        spawn(0, std::chrono::seconds(10));
    }
    const bool was_over = job_over_;
    job_over_ = job_over_ || job_is_closed();
    bool anyone = false;
    for (std::uint32_t host = 0; host < agents_.size(); ++host) {
        const bool running = agents_[host]->running();
        anyone = anyone || running;
        if (hosts_[host].was_running && !running && is_host(host)) {
            host_ended();
        }
        if (hosts_[host].was_running && !running && agents_[host]->last_quit() && !job_over_) {
            spawn(host, std::chrono::seconds(calm_.begun ? 1 : 10));
        }
        hosts_[host].was_running = running;
    }
    if (calm_.begun && job_over_ && !was_over) {
        // All nodes are to hear of it.
        calm_.until = std::max(calm_.until, world_.now + calm_limit());
    }
    if (job_over_ && !anyone && !new_job_due_ && !lingers_) {
        new_job_due_ = true;
        world_.queue.push(world_.now + kNewJobPause, EventKind::new_job);
    }
}

void Simulation::start_job() {
    ++report_.jobs;
    job_over_ = new_job_due_ = false;
    last_round_ = rendezvous::RoundId::none;
    world_.job = JobPlan::draw(world_.random, world_.second_random, world_.plan);
    log_.forget();
    for (const auto& daemon : daemons_) {
        daemon->forget_job();
    }
    for (const auto& agent : agents_) {
        agent->warden().forget();
    }
    begin_hosting();
    const rendezvous::JobPolicy& policy = world_.job.policy;
    world_.note([&] {
        return "a job begins: nodes " + std::to_string(policy.nodes_min) + ":" +
               std::to_string(policy.nodes_max) + " of " + std::to_string(agents_.size()) +
               " hosts, restarts " + std::to_string(policy.restarts_max) + ", last call " +
               format_duration(policy.last_call) + ", heartbeat " +
               format_duration(policy.heartbeat_timeout) + ", shutdown " +
               format_duration(policy.shutdown_timeout) + ", grow after " +
               format_duration(policy.grow_after) +
               (world_.job.hosted ? ", served by the launcher on a" : "");
    });
    const Plan& plan = world_.plan;
    const bool rough = plan.network.loss > 0 || plan.network.reorder ||
                       plan.network.straggler > 0 || plan.network.duplication > 0 ||
                       plan.drift_ppm_max > 5000;
    world_.tell([&](Checker& c) {
        c.on_job(world_.now, policy);
        c.on_trouble(world_.now, rough ? Instant::max() : world_.now);
    });
    for (std::uint32_t host = 0; host < agents_.size(); ++host) {
        spawn(host, calm_.begun ? Duration::zero() : world_.job.start_spread);
    }
    if (calm_.begun) {
        calm_.until = world_.now + calm_limit();
    }
}

void Simulation::spawn(std::uint32_t host, Duration within) {
    world_.queue.push(world_.now + kRespawnMin + between(world_.random, {}, within),
                      EventKind::spawn, host, report_.jobs);
}

SimulatedDaemon& Simulation::daemon() const {
    for (const auto& daemon : daemons_) {
        if (daemon->job().core() != nullptr) {
            return *daemon;
        }
    }
    return *daemons_.front();
}

bool Simulation::job_is_closed() const {
    return log_.begun() ? log_.machine().verdict().has_value() : daemon().job().closed();
}

// ---- The view of the checkers.

void Simulation::look(View& view) {
    // Steps on their way into the log may be lost.
    view.rendezvous = daemon().job().core();
    if (view.rendezvous != nullptr && world_.plan.durability != Durability::memory) {
        view.rendezvous = log_.begun() ? &log_.machine() : nullptr;
    }
    view.daemon_awake_since = daemon().awake_since();
    view.in_flight = world_.network.in_flight();
    view.network_limit = world_.network.delay_limit();
    const bool nobody_serves = world_.plan.housed && !daemons_.front()->up();
    view.verdict_was_forgotten = job_over_ && (!job_is_closed() || nobody_serves);
    view.step_limit = world_.job.step_time + world_.plan.apply_max;
    view.hang_limit = world_.plan.hang_limit;
    view.work_limit = world_.plan.own_work;
    view.reliable = world_.plan.network.loss <= 0 && !world_.plan.network.reorder;
    view.hosts.resize(agents_.size());
    for (std::uint32_t host = 0; host < agents_.size(); ++host) {
        const SimulatedAgent& agent = *agents_[host];
        HostView& seen = view.hosts[host];
        const bool undisturbed = agent.awake_since() != Instant::max() && hosts_[host].cuts == 0 &&
                                 daemon().awake_since() != Instant::max() &&
                                 !world_.network.is_slow();
        Instant& since = hosts_[host].undisturbed_since;
        if (!undisturbed) {
            since = Instant::max();
        } else if (since == Instant::max()) {
            since = world_.now;
        }
        seen.agent = agent.core();
        seen.node = agent.node();
        seen.undisturbed_since = since;
        seen.awake_since = agent.awake_since();
        seen.workers_alive = alive_count(workers_, host);
    }
}

void Simulation::tick() {
    look(view_);
    world_.tell([&](Checker& c) { c.on_tick(world_.now, view_); });
    await_returns();
    world_.queue.push(world_.now + kTick, EventKind::tick);
}

RunReport run_seed(const Options& options) {
    RunReport report = Simulation(options).run();
    if (report.violation && options.trace_lines == 0) {
        Options again = options;
        again.trace_lines = 400;
        report = Simulation(again).run();
    }
    return report;
}

}  // namespace regroup::simulation
