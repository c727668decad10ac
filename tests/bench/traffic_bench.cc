// SPDX-License-Identifier: Apache-2.0
//
// The traffic of a job on the control connections for each node, counted in the daemon: a
// rendezvous, a restart after a failure, and a heartbeat. The agents are real except for their
// workers: an AgentCore and a ControlClient with its own TCP connection, all in this process.
//
//     traffic_bench [NODES_MAX [C10D_TRAFFIC_SCRIPT]]
//
// With the script, a rendezvous of torchrun is counted as well, if torchrun is installed. The
// counts do not depend on time, so they are the same on a busy machine.
#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/core/agent_core.h"
#include "rendezvous/client/control_client.h"
#include "rendezvous/security/key.h"
#include "rendezvous/server/daemon.h"
#include "tests/bench/peers.h"
#include "tests/bench/report.h"

namespace regroup::bench {
namespace {

using namespace rendezvous;  // NOLINT: the values of the protocol.

constexpr std::uint32_t kDefaultNodesMax = 128;
constexpr std::uint32_t kWorkers = 8;
constexpr std::uint16_t kStorePort = 40000;
constexpr Duration kLimit = std::chrono::seconds(30);

agent::AgentConfig config_of(std::uint32_t index, std::uint32_t nodes) {
    agent::AgentConfig config;
    config.job = "20261121-100526-9f3c";
    config.policy.nodes_min = nodes;
    config.policy.nodes_max = nodes;
    config.policy.restarts_max = 3;
    config.policy.program = "train";
    config.offer.name = "node" + std::to_string(1000 + index);
    config.offer.workers = kWorkers;
    config.offer.other_addresses = {"192.168.100.101"};
    config.offer.secret = security::random_text();
    config.offer.store_key = security::random_text();
    config.node = config.offer.name + "-12345-00c0ffee";
    return config;
}

/// One agent with simulated workers: they run when launched and end when asked to.
class Node {
   public:
    Node(boost::asio::io_context& io, const Clock& clock, std::uint16_t port,
         agent::AgentConfig config)
        : clock_(clock), core_(std::move(config), clock.now()) {
        ControlClient::Handlers handlers;
        handlers.on_up = [this] { feed(agent::LinkUp{}); };
        handlers.on_down = [this] { feed(agent::LinkDown{}); };
        handlers.on_message = [this](const FromDaemon& message) {
            ++heard_;
            feed(agent::Received{message});
        };
        handlers.on_trouble = [](const std::string& reason, bool /*answered*/) {
            std::fprintf(stderr, "traffic_bench: %s\n", reason.c_str());
        };
        client_ =
            std::make_unique<ControlClient>(io, Endpoint{"127.0.0.1", port}, std::move(handlers));
        feed(agent::StoreOffered{kStorePort});
        client_->start();
    }

    void fail_worker() {
        WorkerFailure failure;
        failure.node = "node1000";
        failure.host = "node1000";
        failure.pid = 12345;
        failure.signal = SIGKILL;
        failure.time = "2026-11-21 10:05:26";
        feed(agent::WorkerExited{round_, 0, failure});
    }

    void beat() {
        heard_before_beat_ = heard_;
        apply(core_.advance(core_.next_deadline()));
    }
    /// Sends the messages that it has held back since it got its assignment.
    void release() {
        is_holding_ = false;
        for (const FromAgent& message : std::exchange(held_, {})) {
            client_->send(message);
        }
    }

    [[nodiscard]] std::uint64_t round() const { return number(round_); }
    [[nodiscard]] bool is_answered() const { return heard_ > heard_before_beat_; }

   private:
    void feed(const agent::AgentEvent& event) { apply(core_.step(clock_.now(), event)); }

    void apply(const agent::AgentEffects& effects) {
        for (const agent::AgentEffect& effect : effects) {
            if (const auto* send = std::get_if<agent::SendToDaemon>(&effect)) {
                if (is_holding_) {
                    held_.push_back(send->message);
                } else {
                    client_->send(send->message);
                }
            } else if (const auto* launch = std::get_if<agent::LaunchWorkers>(&effect)) {
                round_ = launch->assignment.round;
                is_holding_ = true;
            } else if (std::holds_alternative<agent::SignalWorkers>(effect)) {
                for (std::uint32_t rank = 0; rank < kWorkers; ++rank) {
                    feed(agent::WorkerExited{round_, rank, std::nullopt});
                }
            }
        }
    }

    const Clock& clock_;
    agent::AgentCore core_;
    std::unique_ptr<ControlClient> client_;
    RoundId round_ = RoundId::none;
    /// A rendezvous ends with the assignment: the report that follows is not part of it.
    bool is_holding_ = false;
    std::vector<FromAgent> held_;
    std::uint64_t heard_ = 0;  ///< Messages.
    std::uint64_t heard_before_beat_ = 0;
};

struct Cost {
    double messages = 0;  ///< For each node, both directions.
    double bytes = 0;
};

/// A daemon and its nodes.
class Job {
   public:
    explicit Job(std::uint32_t count) {
        DaemonSetup setup;
        setup.address = "127.0.0.1";
        auto opened = open_daemon(io_, clock_, std::move(setup));
        ENSURE(opened.has_value());
        daemon_ = *std::move(opened);
        for (std::uint32_t i = 0; i < count; ++i) {
            nodes_.push_back(
                std::make_unique<Node>(io_, clock_, daemon_->port(), config_of(i, count)));
        }
    }

    /// The daemon's counts until all nodes run `round`; nothing if they do not.
    std::optional<Cost> run_until_round(std::uint64_t round) {
        return count([&](const Node& node) { return node.round() == round; });
    }

    void fail_one_worker() { nodes_.front()->fail_worker(); }

    std::optional<Cost> beat_once() {
        for (const auto& node : nodes_) {
            node->beat();
        }
        return count([](const Node& node) { return node.is_answered(); });
    }

   private:
    template <class Condition>
    std::optional<Cost> count(const Condition& holds) {
        const Instant deadline = clock_.now() + kLimit;
        const auto all = [&] {
            return std::all_of(nodes_.begin(), nodes_.end(),
                               [&](const auto& node) { return holds(*node); });
        };
        while (!all()) {
            if (clock_.now() > deadline) {
                return std::nullopt;
            }
            io_.restart();
            io_.run_one_for(std::chrono::milliseconds(10));
            io_.poll();
        }
        const DaemonCounters now = daemon_->counters();
        const auto per_node = [&](std::uint64_t total, std::uint64_t before) {
            return static_cast<double>(total - before) / static_cast<double>(nodes_.size());
        };
        const Cost cost = {
            per_node(now.messages_in + now.messages_out, seen_.messages_in + seen_.messages_out),
            per_node(now.bytes_in + now.bytes_out, seen_.bytes_in + seen_.bytes_out)};
        settle();
        return cost;
    }

    /// Excludes the traffic after an assignment or an answer from the measurement.
    void settle() {
        for (const auto& node : nodes_) {
            node->release();
        }
        io_.restart();
        io_.run_for(std::chrono::milliseconds(50));
        seen_ = daemon_->counters();
    }

    SteadyClock clock_;
    boost::asio::io_context io_{1};
    std::unique_ptr<Daemon> daemon_;
    std::vector<std::unique_ptr<Node>> nodes_;
    DaemonCounters seen_;
};

/// The traffic of a rendezvous of torchrun, if `command` can measure it.
std::optional<Cost> cost_of_c10d(const std::string& command, std::uint32_t nodes) {
    const std::string line = command + " " + std::to_string(nodes) + " 2>/dev/null";
    std::FILE* pipe = ::popen(line.c_str(), "r");
    Cost cost;
    const bool told =
        pipe != nullptr && std::fscanf(pipe, "%lf %lf", &cost.messages, &cost.bytes) == 2;
    if (pipe != nullptr) {
        ::pclose(pipe);
    }
    return told ? std::optional(cost) : std::nullopt;
}

int run(std::uint32_t nodes_max, const std::string& script) {
    print_head(
        "traffic: for each node the control messages, then their bytes, counted in the daemon");
    const auto torchrun = script.empty() ? std::nullopt : find_torchrun();
    Table table({"nodes", "rendezvous", "bytes", "restart", "bytes", "heartbeat", "bytes",
                 "c10d rendezvous", "bytes"});
    Cost first;
    Cost worst;
    double exponent = 1;
    for (std::uint32_t nodes = 2; nodes <= nodes_max; nodes *= 2) {
        Job job(nodes);
        const std::optional<Cost> rendezvous = job.run_until_round(1);
        job.fail_one_worker();
        const std::optional<Cost> restart = job.run_until_round(2);
        const std::optional<Cost> heartbeat = job.beat_once();
        if (!rendezvous || !restart || !heartbeat) {
            std::fprintf(stderr, "traffic_bench: %u nodes came to no end\n", nodes);
            return 1;
        }
        const std::optional<Cost> c10d =
            torchrun ? cost_of_c10d(torchrun->command.front() + " " + script, nodes) : std::nullopt;
        table.add({std::to_string(nodes), fixed(rendezvous->messages, 2),
                   fixed(rendezvous->bytes, 0), fixed(restart->messages, 2),
                   fixed(restart->bytes, 0), fixed(heartbeat->messages, 2),
                   fixed(heartbeat->bytes, 0), c10d ? fixed(c10d->messages, 2) : "-",
                   c10d ? fixed(c10d->bytes, 0) : "-"});
        if (nodes == 2) {
            first = *rendezvous;
        } else {
            exponent = 1 + std::log(rendezvous->bytes / first.bytes) / std::log(nodes / 2.0);
        }
        worst.messages = std::max(worst.messages, rendezvous->messages);
        worst.bytes = std::max(worst.bytes, rendezvous->bytes);
    }
    table.print();
    std::printf("\n");
    print_verdict("messages for each node in a rendezvous, most", worst.messages, Aim::at_most, 3);
    print_verdict("bytes for each node in a rendezvous, most", worst.bytes, Aim::at_most, 640);
    print_verdict("exponent of all bytes in the number of nodes", exponent, Aim::at_most, 1.05);
    return 0;
}

}  // namespace
}  // namespace regroup::bench

int main(int argc, char** argv) {
    using namespace regroup::bench;
    const int nodes_max = argc > 1 ? std::atoi(argv[1]) : 0;
    return run(nodes_max >= 2 ? static_cast<std::uint32_t>(nodes_max) : kDefaultNodesMax,
               argc > 2 ? argv[2] : "");
}
