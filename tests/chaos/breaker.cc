// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/breaker.h"

#include <chrono>
#include <signal.h>
#include <utility>

namespace regroup::chaos {
namespace {

using F = FaultKind;

std::string name_of(std::size_t number) {
    return std::to_string(number);
}

std::size_t host_of(const Fault& fault) {
    return fault.node + 1;
}

bool signal(pid_t pid, int number) {
    return pid != 0 && ::kill(pid, number) == 0;
}

constexpr std::int64_t kMinute = 60'000'000'000;

}  // namespace

bool Breaker::stop(std::size_t number, pid_t pid) {
    if (!signal(pid, SIGSTOP)) {
        return false;
    }
    stopped_[number] = pid;
    return true;
}

bool Breaker::begin(std::size_t number, Fault& fault) {
    if (aims_at_standby(fault.kind)) {
        const auto standby =
            fault.kind == F::kill_taker ? std::exchange(taker_, std::nullopt) : cluster_.standby();
        if (!standby || cluster_.node(*standby).end_is_expected) {
            return false;
        }
        fault.node = *standby;
    }
    if (hits_node(fault.kind) && !cluster_.node(fault.node).is_up()) {
        return false;
    }
    if (!ends_node(fault.kind)) {
        return act(number, fault);
    }
    if (cluster_.node(fault.node).end_is_expected) {
        return false;  // The node is still ending. A second fault would hide the cause of its end.
    }
    const auto standby = fault.kind != F::kill_taker ? cluster_.standby() : std::nullopt;
    taker_ = standby != fault.node ? standby : std::nullopt;
    bool& expected = cluster_.node(fault.node).end_is_expected;
    expected = true;
    expected = act(number, fault);
    return expected;
}

bool Breaker::act(std::size_t number, const Fault& fault) {
    const Network& network = cluster_.network();
    const auto percent = static_cast<unsigned>(fault.strength);
    switch (fault.kind) {
        case F::kill_worker:
        case F::kill_standby_worker:
            return signal(cluster_.node(fault.node).worker(fault.other), SIGKILL);
        case F::kill_agent:
        case F::kill_taker:
            return signal(cluster_.node(fault.node).agent(), SIGKILL);
        case F::kill_warden:
            return signal(cluster_.node(fault.node).warden(), SIGKILL);
        case F::drain_node:
            return signal(cluster_.node(fault.node).warden(), SIGTERM);
        case F::drain_by_word:
            return cluster_.drain(fault.node);
        case F::kill_node:
            for (const pid_t pid : cluster_.node(fault.node).family()) {
                signal(pid, SIGKILL);
            }
            return true;
        case F::kill_workers: {
            const std::vector<pid_t> workers = cluster_.node(fault.node).workers();
            for (const pid_t pid : workers) {
                signal(pid, SIGKILL);
            }
            return !workers.empty();
        }
        case F::stop_worker:
            return stop(number, cluster_.node(fault.node).worker(fault.other));
        case F::stop_agent:
            return stop(number, cluster_.node(fault.node).agent());
        case F::kill_daemon:
            return signal(cluster_.daemon(), SIGKILL);
        case F::stop_daemon:
            return stop(number, cluster_.daemon());
        case F::cut_link:
            network.pull(host_of(fault));
            return true;
        case F::lossy_link:
            network.lose_packets(host_of(fault), name_of(number), percent, percent);
            return true;
        case F::deaf_node:
            network.lose_packets(host_of(fault), name_of(number), 100, 0);
            return true;
        case F::mute_node:
            network.lose_packets(host_of(fault), name_of(number), 0, 100);
            return true;
        case F::part_pair:
            network.part(host_of(fault), fault.other + 1, name_of(number));
            return true;
        case F::reset_pair:
            network.reset(host_of(fault), fault.other + 1, name_of(number));
            return true;
        case F::slow_line:
            cluster_.slow_line().set(fault.strength * 1000);
            return true;
        case F::jump_clock:
            cluster_.node(fault.node).clock->set(fault.strength * kMinute);
            return true;
        case F::jump_daemon_clock:
            cluster_.daemon_clock().set(fault.strength * kMinute);
            return true;
        case F::fill_disk:
            cluster_.fill_disk(cluster_.run_disk(fault.node));
            return true;
        case F::fill_daemon_disk:
            cluster_.fill_disk(cluster_.state_disk());
            return true;
    }
    return false;
}

bool Breaker::end(std::size_t number, const Fault& fault) {
    if (ends_node(fault.kind)) {
        if (cluster_.node(fault.node).is_up()) {
            return false;
        }
        cluster_.start_node(fault.node);
    } else if (const auto stopped = stopped_.extract(number)) {
        // The stopped process may have been killed, and its pid reused. SIGCONT does no harm.
        signal(stopped.mapped(), SIGCONT);
    } else if (fault.kind == F::kill_daemon) {
        if (cluster_.daemon() != 0) {
            return false;
        }
        cluster_.start_daemon();
    } else {
        heal(number, fault);
    }
    return true;
}

void Breaker::heal(std::size_t number, const Fault& fault) {
    const Network& network = cluster_.network();
    switch (fault.kind) {
        case F::cut_link:
            network.plug(host_of(fault));
            return;
        case F::lossy_link:
        case F::deaf_node:
        case F::mute_node:
        case F::part_pair:
        case F::reset_pair:
            network.heal(host_of(fault), name_of(number));
            return;
        case F::slow_line:
            cluster_.slow_line().set(0);
            return;
        case F::jump_clock:
            cluster_.node(fault.node).clock->set(0);
            return;
        case F::jump_daemon_clock:
            cluster_.daemon_clock().set(0);
            return;
        case F::fill_disk:
            cluster_.free_disk(cluster_.run_disk(fault.node));
            return;
        case F::fill_daemon_disk:
            cluster_.free_disk(cluster_.state_disk());
            return;
        default:
            return;
    }
}

}  // namespace regroup::chaos
