// SPDX-License-Identifier: Apache-2.0
//
// Faults of a simulation: when each occurs, its effect, and its end.
#include <algorithm>
#include <csignal>

#include "tests/simulation/simulation.h"

namespace regroup::simulation {

namespace {

constexpr Duration kOutageMin = std::chrono::milliseconds(1);
// Stands for the whole network instead of one host.
constexpr std::uint32_t kNetworkSubject = 1000;
constexpr std::uint32_t kEtcdSubject = 2001;  // From here on: one daemon's connection to etcd.
constexpr int kSlowness = 50;

}  // namespace

void Simulation::apply_fault() {
    if (calm_.begun) {
        return;
    }
    ++report_.faults;
    const Plan& plan = world_.plan;
    const FaultKind kind = plan.faults[world_.random.below(plan.faults.size())];
    const auto host = static_cast<std::uint32_t>(world_.random.below(plan.hosts));
    Duration outage = between(world_.random, kOutageMin, plan.outage_max);
    outage = std::min(outage, calm_.from - world_.now);
    world_.note([&] {
        return std::string("* fault: ") + to_string(kind) + " (" + host_name(host) + ", " +
               format_duration(outage) + ")";
    });
    const bool is_trouble =
        kind != FaultKind::operator_drain && kind != FaultKind::peers_severed &&
        (kind != FaultKind::daemon_killed || plan.durability == Durability::memory) &&
        kind != FaultKind::daemon_killed_midway;
    if (is_trouble) {
        world_.tell([&](Checker& c) { c.on_trouble(world_.now, world_.now + outage); });
    }
    strike_daemon(kind, outage);
    strike_host(kind, host, outage);
    world_.queue.push(world_.now + exponential(world_.random, plan.fault_interval),
                      EventKind::fault);
}

void Simulation::strike_daemon(FaultKind kind, Duration outage) {
    // Usually the leading daemon.
    std::uint32_t index = 0;
    if (daemons_.size() > 1) {
        const bool any = world_.random.chance(0.3);
        index = static_cast<std::uint32_t>(any ? world_.random.below(daemons_.size())
                                               : (&daemon() == daemons_[0].get() ? 0 : 1));
    }
    SimulatedDaemon& struck = *daemons_[index];
    switch (kind) {
        case FaultKind::daemon_paused:
            if (!struck.uptime().is_paused(world_.now)) {
                struck.uptime().pause(world_.now + outage);
                if (world_.job.hosted) {
                    agents_.front()->uptime().pause(world_.now + outage);
                }
                disturb_all();
            }
            break;
        case FaultKind::daemon_killed:
            if (world_.job.hosted) {
                strike_host(FaultKind::agent_killed, 0, outage);
            } else if (struck.up()) {
                struck.kill();
                world_.queue.push(world_.now + outage, EventKind::daemon_return, index);
            }
            break;
        case FaultKind::daemon_killed_midway:
            struck.kill_midway(outage);
            break;
        case FaultKind::etcd_cut:
            etcd_.cut(index, true);
            disturb_all();
            world_.queue.push(world_.now + outage, EventKind::heal, kEtcdSubject + index);
            break;
        case FaultKind::etcd_away:
            etcd_.set_down(true);
            disturb_all();
            world_.queue.push(world_.now + outage, EventKind::heal, kEtcdSubject - 1);
            break;
        case FaultKind::operator_stop:
            if (!struck.uptime().is_paused(world_.now)) {
                struck.operate("stopped by operator",
                               rendezvous::StopRequested{"operator", "enough"});
            }
            break;
        case FaultKind::operator_drain:
            if (!struck.uptime().is_paused(world_.now)) {
                const std::string node =
                    host_name(static_cast<std::uint32_t>(world_.random.below(agents_.size())));
                struck.operate("an operator drains node " + node,
                               rendezvous::DrainRequested{node, "operator", "maintenance"});
            }
            break;
        case FaultKind::slow_network:
            world_.network.set_slowness(kSlowness);
            world_.queue.push(world_.now + outage, EventKind::heal, kNetworkSubject);
            break;
        case FaultKind::mass_outage:
            for (std::uint32_t host = 0; host < agents_.size(); ++host) {
                strike_host(FaultKind::agent_killed, host, outage);
            }
            break;
        default:
            break;
    }
}

void Simulation::strike_host(FaultKind kind, std::uint32_t host, Duration outage) {
    SimulatedAgent& agent = *agents_[host];
    if (is_host(host) && kind == FaultKind::host_lost) {
        kind = FaultKind::agent_killed;
    }
    const bool is_cut = kind == FaultKind::partition || kind == FaultKind::deaf_agent ||
                        kind == FaultKind::mute_agent;
    if (is_cut && is_host(host)) {
        return;  // The launcher serves this rendezvous: there is no network between the two.
    }
    const bool cuts_in = kind == FaultKind::partition || kind == FaultKind::deaf_agent;
    const bool cuts_out = kind == FaultKind::partition || kind == FaultKind::mute_agent;
    if (cuts_in || cuts_out) {
        if (cuts_in) {
            world_.network.cut(host, Direction::to_agent);
        }
        if (cuts_out) {
            world_.network.cut(host, Direction::to_daemon);
        }
        ++hosts_[host].cuts;
        hosts_[host].undisturbed_since = Instant::max();
        world_.queue.push(world_.now + outage, EventKind::heal, host);
    }
    if (kind == FaultKind::worker_killed) {
        fail_worker(workers_, host);
    }
    if (kind == FaultKind::worker_hung) {
        hang_worker(workers_, host);
    }
    if (kind == FaultKind::peers_severed) {
        sever_workers(workers_, host, world_.now + outage);
    }
    if (!agent.running()) {
        return;
    }
    const bool awake = !agent.uptime().is_paused(world_.now);
    switch (kind) {
        case FaultKind::agent_killed:
            agent.kill();
            spawn(host, outage);
            break;
        case FaultKind::host_lost:
            agent.power_off();
            spawn(host, outage);
            break;
        case FaultKind::agent_paused:
            if (awake) {
                agent.uptime().pause(world_.now + outage);
                hosts_[host].undisturbed_since = Instant::max();
                if (is_host(host)) {
                    daemons_.front()->uptime().pause(world_.now + outage);
                    disturb_all();
                }
            }
            break;
        case FaultKind::connection_broken:
            if (awake) {
                agent.break_link();
            }
            break;
        case FaultKind::connection_doubled:
            if (awake && daemons_[agent.link().endpoint]->up()) {
                agent.double_link();
            }
            break;
        case FaultKind::agent_signalled:
            if (awake) {
                const std::uint64_t incarnation = agent.incarnation();
                agent.quit(SIGTERM);
                if (world_.random.chance(0.3)) {
                    world_.queue.push(
                        world_.now + between(world_.random, {}, std::chrono::seconds(2)),
                        EventKind::second_signal, host, incarnation);
                }
            }
            break;
        default:
            break;
    }
}

void Simulation::heal(std::uint32_t subject) {
    if (subject >= kEtcdSubject - 1) {
        if (subject == kEtcdSubject - 1) {
            etcd_.set_down(false);
        } else {
            etcd_.cut(subject - kEtcdSubject, false);
        }
        return;
    }
    if (subject == kNetworkSubject) {
        world_.network.set_slowness(1);
        return;
    }
    if (hosts_[subject].cuts > 0) {
        --hosts_[subject].cuts;
        if (hosts_[subject].cuts == 0) {
            world_.network.heal(world_.now, subject);
        }
    }
}

void Simulation::disturb_all() {
    for (HostState& host : hosts_) {
        host.undisturbed_since = Instant::max();
    }
}

}  // namespace regroup::simulation
