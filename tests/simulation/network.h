// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/core/messages.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/plan.h"

namespace regroup::simulation {

inline constexpr std::uint32_t kNoConnection = 0;

enum class Direction : std::uint8_t { to_daemon, to_agent };

struct Connection {
    std::uint32_t host = 0;
    std::uint32_t daemon = 0;
    bool agent_open = false;                ///< The agent's process still has its end.
    bool daemon_open = false;               ///< So does the daemon.
    bool agent_vanished = false;            ///< The host lost power: its end sends no FIN.
    std::array<Instant, 2> last_arrival{};  ///< By direction; TCP keeps the order.
    std::string node;  ///< The node that has joined over it, as the daemon knows.
};

/// An arrival at the other end: a message, or without one the end of the connection.
struct Arrival {
    std::uint32_t connection = kNoConnection;
    Direction direction = Direction::to_daemon;
    std::variant<std::monostate, rendezvous::FromAgent, rendezvous::FromDaemon> message;
};

/// Connections between hosts and the daemon, with delays, partitions and (if the plan has them)
/// loss, duplication and reordering. Does not interpret messages.
class Network {
   public:
    Network(EventQueue& queue, Random random, const Plan& plan);

    void set_plan(const NetworkPlan& plan) { plan_ = plan; }
    /// From now on every delay is `factor` times as long.
    void set_slowness(int factor) {
        slowness_ = factor;
        slowness_max_ = std::max(slowness_max_, factor);
    }

    [[nodiscard]] bool is_slow() const { return slowness_ > 1; }

    /// True if the network allows a new connection at this moment.
    [[nodiscard]] bool passable(std::uint32_t host) const;
    [[nodiscard]] std::uint32_t open(std::uint32_t host, std::uint32_t daemon);
    [[nodiscard]] Duration draw_delay();
    /// The longest one-way delay of a message.
    [[nodiscard]] Duration delay_limit() const;

    void send(Instant now, std::uint32_t connection, rendezvous::FromAgent message);
    void send(Instant now, std::uint32_t connection, rendezvous::FromDaemon message);
    void close_by_agent(Instant now, std::uint32_t connection);
    void close_by_daemon(Instant now, std::uint32_t connection);
    void close_all_by_daemon(Instant now, std::uint32_t daemon);
    void power_off(std::uint32_t host);
    void power_on(std::uint32_t host) { hosts_[host].powered = true; }

    void cut(std::uint32_t host, Direction direction) { hosts_[host].cut[index(direction)] = true; }
    void heal(Instant now, std::uint32_t host);

    /// Takes packet `id` off the wire. Empty if its receiver is gone.
    [[nodiscard]] std::optional<Arrival> take(Instant now, std::uint32_t id);
    /// Packet `id`, without taking it off the wire.
    [[nodiscard]] const Arrival& peek(std::uint32_t id) const { return packets_[id]; }

    [[nodiscard]] Connection& connection(std::uint32_t id) { return connections_[id]; }
    [[nodiscard]] const Connection& connection(std::uint32_t id) const { return connections_[id]; }
    [[nodiscard]] bool is_cut(std::uint32_t host) const {
        return hosts_[host].cut[0] || hosts_[host].cut[1];
    }
    /// Messages on the wire or held up by a partition.
    [[nodiscard]] std::size_t in_flight() const { return packets_.size() - free_.size(); }

   private:
    struct Host {
        std::array<bool, 2> cut{};
        std::array<std::vector<std::uint32_t>, 2> held;  ///< Packets that wait for the heal.
        bool powered = true;
    };
    static std::size_t index(Direction direction) { return static_cast<std::size_t>(direction); }
    std::uint32_t store(Arrival arrival);
    void dispatch(Instant now, Arrival arrival);
    void schedule(Instant now, std::uint32_t id);

    EventQueue& queue_;
    Random random_;
    NetworkPlan plan_;
    int slowness_ = 1;
    int slowness_max_ = 1;
    std::vector<Host> hosts_;
    std::vector<Connection> connections_;
    std::vector<Arrival> packets_;
    std::vector<std::uint32_t> free_;
};

}  // namespace regroup::simulation
