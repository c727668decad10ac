// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/scale_fleet.h"

#include <arpa/inet.h>
#include <cstdio>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>
#include <variant>

#include "rendezvous/text/describe.h"
#include "tests/bench/child.h"

/// Each connection comes from an address of its own, 127.1.0.1 and those that follow, as from a
/// host of its own.
extern "C" int connect(int fd, const sockaddr* to, socklen_t bytes) {
    static std::uint32_t hosts = 0;
    if (to->sa_family == AF_INET) {
        sockaddr_in from{};
        from.sin_family = AF_INET;
        from.sin_addr.s_addr = htonl(0x7f010001 + hosts++ % 0x10000);
        const int late = 1;  // The port comes with the connection.
        ::setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &late, sizeof late);
        ::bind(fd, reinterpret_cast<const sockaddr*>(&from), sizeof from);
    }
    return static_cast<int>(::syscall(SYS_connect, fd, to, bytes));
}

namespace regroup::bench {

using namespace rendezvous;  // NOLINT: the values of the protocol.
using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

constexpr Duration kLimit = std::chrono::minutes(2);
constexpr milliseconds kTick(1);
constexpr const char* kJob = "scale";

}  // namespace

Fleet::Fleet(std::uint32_t size_in, std::uint16_t port_in, security::Credentials credentials_in)
    : size(size_in), port(port_in), credentials(std::move(credentials_in)), timer_(io) {
    for (std::uint32_t i = 0; i < size; ++i) {
        nodes.push_back(std::make_unique<Node>(*this, i));
    }
    beat_at_ = steady_clock::now();
    tick();
}

void Fleet::await(const std::uint32_t& counted, std::uint32_t wanted, const char* what) {
    const auto until = steady_clock::now() + kLimit;
    while (counted < wanted) {
        if (steady_clock::now() > until) {
            for (const auto& [trouble, count] : troubles_) {
                std::fprintf(stderr, "%zu times: %s\n", count, trouble.c_str());
            }
            throw Unfinished(std::to_string(counted) + " of " + std::to_string(wanted) + " nodes " +
                             what);
        }
        io.run_one_for(milliseconds(100));
    }
}

void Fleet::tick() {
    const auto now = steady_clock::now();
    const auto gap = nodes[0]->policy().heartbeat_timeout / 3 / size;
    for (; beat_at_ <= now; beat_at_ += gap) {
        nodes[next_++ % size]->beat();
    }
    timer_.expires_after(kTick);
    timer_.async_wait([this](const boost::system::error_code& error) {
        if (!error) {
            tick();
        }
    });
}

Node::Node(Fleet& fleet, std::uint32_t index) : fleet_(fleet) {
    join_.job = kJob;
    join_.node = "node" + std::to_string(10000 + index) + "-12345-00c0ffee";
    join_.policy.nodes_min = fleet.size - 1;
    join_.policy.nodes_max = fleet.size;
    join_.policy.heartbeat_timeout = usual_heartbeat_timeout(fleet.size - 1);
    join_.policy.program = "train";
    join_.offer.name = "node" + std::to_string(10000 + index);
    join_.offer.workers = 8;
    join_.offer.secret = std::string(22, 's');
    join_.offer.store_key = std::string(22, 'k');
    report_.store_port = 40000;
    ControlClient::Handlers handlers;
    handlers.on_up = [this] { join(); };
    handlers.on_message = [this](const FromDaemon& message) { hear(message); };
    handlers.on_down = [this] { up_ = false; };
    handlers.on_trouble = [this](const std::string& reason, bool /*answered*/) {
        fleet_.note(reason);
    };
    client_ = std::make_unique<ControlClient>(
        fleet.io, std::vector<Endpoint>{{"127.0.0.1", fleet.port}}, std::move(handlers),
        join_.policy.heartbeat_timeout,
        security::Identity{fleet.credentials, {security::Role::node, kJob}});
}

void Node::join() {
    up_ = true;
    beat_at_ = {};
    fleet_.last_join = steady_clock::now();
    join_.report = report_;
    client_->send(join_);
    if (report_.round != RoundId::none) {
        report();  // A member that comes back is answered with its first report.
    }
}

void Node::report() {
    client_->send(Report{report_, {}, {}, {}});
}

void Node::die() {
    client_->send(Leave{"killed", true});
    client_->stop(kClientStopLimit, [] {});
    up_ = false;
}

void Node::beat() {
    if (!up_ || beat_at_ != steady_clock::time_point{}) {
        return;
    }
    beat_at_ = steady_clock::now();
    report();
}

void Node::hear(const FromDaemon& message) {
    if (const auto* assign = std::get_if<Assign>(&message)) {
        if (assign->assignment.round != report_.round) {
            report_.round = assign->assignment.round;
            report_.state = NodeState::running;
            ++fleet_.assigned;
            report();
        }
    } else if (std::holds_alternative<Stop>(message)) {
        report_.state = NodeState::stopped;
        report();
    } else if (std::holds_alternative<Alive>(message)) {
        fleet_.back += std::exchange(is_back_, true) ? 0 : 1;
    } else if (const auto* refused = std::get_if<Refused>(&message)) {
        fleet_.note(describe(refused->reason));
    }
    if (beat_at_ != steady_clock::time_point{}) {
        fleet_.answers_ms.push_back(ms_since(std::exchange(beat_at_, {})));
    }
}

}  // namespace regroup::bench
