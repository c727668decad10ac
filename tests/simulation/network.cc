// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/network.h"

#include <algorithm>
#include <utility>

#include "rendezvous/base/ensure.h"

namespace regroup::simulation {

namespace {

constexpr Duration kDelayMax = std::chrono::seconds(5);
constexpr int kStragglerFactor = 100;

}  // namespace

Network::Network(EventQueue& queue, Random random, const Plan& plan)
    : queue_(queue), random_(random), plan_(plan.network), hosts_(plan.hosts), connections_(1) {}

bool Network::passable(std::uint32_t host) const {
    return hosts_[host].powered && !is_cut(host);
}

std::uint32_t Network::open(std::uint32_t host, std::uint32_t daemon) {
    Connection& connection = connections_.emplace_back();
    connection.host = host;
    connection.daemon = daemon;
    connection.agent_open = connection.daemon_open = true;
    return static_cast<std::uint32_t>(connections_.size() - 1);
}

Duration Network::draw_delay() {
    Duration delay = plan_.delay + between(random_, Duration::zero(), plan_.jitter);
    if (plan_.straggler > 0 && random_.chance(plan_.straggler)) {
        delay *= kStragglerFactor;
    }
    return std::min(delay * slowness_, kDelayMax);
}

Duration Network::delay_limit() const {
    const Duration longest = (plan_.delay + plan_.jitter) * slowness_max_;
    return std::min(plan_.straggler > 0 ? longest * kStragglerFactor : longest, kDelayMax);
}

std::uint32_t Network::store(Arrival arrival) {
    if (free_.empty()) {
        packets_.push_back(std::move(arrival));
        return static_cast<std::uint32_t>(packets_.size() - 1);
    }
    const std::uint32_t id = free_.back();
    free_.pop_back();
    packets_[id] = std::move(arrival);
    return id;
}

void Network::schedule(Instant now, std::uint32_t id) {
    const Arrival& packet = packets_[id];
    Instant& last = connections_[packet.connection].last_arrival[index(packet.direction)];
    Instant at = now + draw_delay();
    const bool is_end = std::holds_alternative<std::monostate>(packet.message);
    if (!plan_.reorder || is_end) {
        at = std::max(at, last);
    }
    last = std::max(last, at);
    queue_.push(at, EventKind::packet, id);
}

void Network::dispatch(Instant now, Arrival arrival) {
    const Host& host = hosts_[connections_[arrival.connection].host];
    const std::size_t direction = index(arrival.direction);
    const bool is_end = std::holds_alternative<std::monostate>(arrival.message);
    if (!is_end && plan_.loss > 0 && random_.chance(plan_.loss)) {
        return;
    }
    if (host.cut[direction] && plan_.partitions_drop && !is_end) {
        return;
    }
    if (!is_end && plan_.duplication > 0 && random_.chance(plan_.duplication) &&
        !host.cut[direction]) {
        schedule(now, store(arrival));
    }
    const std::uint32_t id = store(std::move(arrival));
    if (host.cut[direction]) {
        hosts_[connections_[packets_[id].connection].host].held[direction].push_back(id);
    } else {
        schedule(now, id);
    }
}

void Network::send(Instant now, std::uint32_t connection, rendezvous::FromAgent message) {
    if (connections_[connection].agent_open) {
        dispatch(now, {connection, Direction::to_daemon, std::move(message)});
    }
}

void Network::send(Instant now, std::uint32_t connection, rendezvous::FromDaemon message) {
    if (connections_[connection].daemon_open) {
        dispatch(now, {connection, Direction::to_agent, std::move(message)});
    }
}

void Network::close_by_agent(Instant now, std::uint32_t connection) {
    if (std::exchange(connections_[connection].agent_open, false)) {
        dispatch(now, {connection, Direction::to_daemon, std::monostate{}});
    }
}

void Network::close_by_daemon(Instant now, std::uint32_t connection) {
    if (std::exchange(connections_[connection].daemon_open, false)) {
        dispatch(now, {connection, Direction::to_agent, std::monostate{}});
    }
}

void Network::close_all_by_daemon(Instant now, std::uint32_t daemon) {
    for (std::uint32_t id = 1; id < connections_.size(); ++id) {
        if (connections_[id].daemon == daemon) {
            close_by_daemon(now, id);
        }
    }
}

void Network::power_off(std::uint32_t host) {
    hosts_[host].powered = false;
    for (Connection& connection : connections_) {
        if (connection.host == host && connection.agent_open) {
            connection.agent_open = false;
            connection.agent_vanished = true;
        }
    }
}

void Network::heal(Instant now, std::uint32_t host) {
    for (std::size_t direction = 0; direction < 2; ++direction) {
        hosts_[host].cut[direction] = false;
        for (const std::uint32_t id : std::exchange(hosts_[host].held[direction], {})) {
            schedule(now, id);
        }
    }
}

std::optional<Arrival> Network::take(Instant now, std::uint32_t id) {
    Arrival arrival = std::exchange(packets_[id], Arrival{});
    free_.push_back(id);
    Connection& connection = connections_[arrival.connection];
    if (arrival.direction == Direction::to_daemon) {
        return connection.daemon_open ? std::optional(std::move(arrival)) : std::nullopt;
    }
    if (connection.agent_open) {
        return arrival;
    }
    // A rebooted host has no old connections and resets them.
    if (hosts_[connection.host].powered && std::exchange(connection.agent_vanished, false)) {
        dispatch(now, {arrival.connection, Direction::to_daemon, std::monostate{}});
    }
    return std::nullopt;
}

}  // namespace regroup::simulation
