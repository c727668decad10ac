// SPDX-License-Identifier: Apache-2.0
//
// The cost of viewers of a daemon for its jobs:
//
//     http_bench [ROUNDS [NODES...]]
//
// For each number of nodes, one job: the round trip of a heartbeat, without and with 50 viewers of
// the page and a scrape of the metrics each second, by turns in one run. Then what a scrape and the
// first load of the page take. Daemon, nodes and viewers are three processes of one machine.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "rendezvous/protocol/codec.h"
#include "rendezvous/protocol/framing.h"
#include "rendezvous/server/daemon.h"
#include "tests/bench/child.h"
#include "tests/bench/report.h"

namespace regroup::bench {
namespace {

using namespace rendezvous;  // NOLINT: the values of the protocol.
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int kViewers = 50;
constexpr std::chrono::seconds kPhase(3);
// Between two heartbeats that are measured.
constexpr milliseconds kPause(2);
// All nodes send one each second.
constexpr milliseconds kHeartbeatInterval(1000);
// Aims: with viewers, of the median and of the 99th percentile without.
constexpr double kMedianRatioMax = 1.5;
constexpr double kTailMsMax = 50;

void send_all(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t count = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (count <= 0) {
            give_up("the daemon has closed a connection");
        }
        bytes.remove_prefix(static_cast<std::size_t>(count));
    }
}

std::string request(const std::string& path, bool stays) {
    return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" +
           (stays ? "" : "Connection: close\r\n") + "\r\n";
}

std::shared_ptr<void> serve(boost::asio::io_context& io, Ports& ports) {
    static const SteadyClock clock;
    DaemonSetup setup;
    setup.address = "127.0.0.1";
    auto daemon = open_daemon(io, clock, std::move(setup));
    if (!daemon) {
        give_up(daemon.error().detail);
    }
    ports = {(*daemon)->port()};
    return *std::move(daemon);
}

/// Looks at the page, and reads all that it is sent.
void view(std::uint16_t port) {
    std::vector<pollfd> all;
    for (int i = 0; i < kViewers; ++i) {
        all.push_back({dial(port), POLLIN, 0});
        send_all(all.back().fd, request("/api/v1/stream", true));
    }
    std::string buffer(std::size_t{256} << 10U, '\0');
    for (auto next = steady_clock::now();;) {
        if (steady_clock::now() >= next) {
            next += std::chrono::seconds(1);
            all.push_back({dial(port), POLLIN, 0});
            send_all(all.back().fd, request("/metrics", false));
        }
        ::poll(all.data(), all.size(), 100);
        for (pollfd& each : all) {
            if (each.revents != 0 && ::read(each.fd, buffer.data(), buffer.size()) <= 0) {
                ::close(std::exchange(each.fd, -1));
            }
        }
        std::erase_if(all, [](const pollfd& each) { return each.fd < 0; });
    }
}

/// An agent, as far as the daemon sees it.
class Node {
   public:
    Node(std::uint16_t port, std::uint32_t index, std::uint32_t nodes) : fd_(dial(port)) {
        Join join;
        join.job = "job";
        join.node = "node" + std::to_string(index);
        join.policy.nodes_min = join.policy.nodes_max = nodes;
        join.policy.heartbeat_timeout = std::chrono::minutes(5);
        join.policy.program = "train";
        join.offer.name = join.node;
        join.offer.workers = 8;
        join.report.store_port = 1;
        send(join);
    }
    ~Node() { ::close(fd_); }
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;

    void send(const FromAgent& message) const {
        send_all(fd_, protocol::make_frame(protocol::encode(message)));
    }
    void beat(std::uint64_t step) const {
        Report report;
        report.report.round = round_;
        report.report.state = NodeState::running;
        report.report.store_port = 1;
        report.report.elastic = true;
        report.report.step = step;
        send(report);
    }
    /// Reads until a message of that type.
    template <class Message>
    Message await() {
        for (;;) {
            const auto payload = reader_.next();
            if (!payload) {
                give_up(payload.error().detail);
            }
            if (*payload) {
                auto message = protocol::decode_from_daemon(**payload);
                if (message && std::holds_alternative<Message>(*message)) {
                    return std::get<Message>(*std::move(message));
                }
                continue;
            }
            char buffer[4096];
            const ssize_t count = ::read(fd_, buffer, sizeof buffer);
            if (count <= 0) {
                give_up("the daemon has closed a node's connection");
            }
            reader_.feed({buffer, static_cast<std::size_t>(count)});
        }
    }
    void take_part() { round_ = await<Assign>().assignment.round; }

   private:
    int fd_;
    protocol::FrameReader reader_;
    RoundId round_ = RoundId::none;
};

using Nodes = std::vector<std::unique_ptr<Node>>;

/// Milliseconds of each heartbeat of the first node. The others send theirs, too.
std::vector<double> measure(const Nodes& nodes, std::uint64_t& step) {
    std::vector<double> times;
    std::size_t other = 0;
    const auto begin = steady_clock::now();
    for (auto now = begin; now < begin + kPhase; now = steady_clock::now()) {
        const auto sent = steady_clock::now();
        nodes[0]->beat(++step);
        (void)nodes[0]->await<Alive>();
        times.push_back(ms_since(sent));
        const auto due =
            static_cast<std::size_t>(static_cast<double>(nodes.size() - 1) * ms_since(begin) /
                                     static_cast<double>(kHeartbeatInterval.count()));
        for (; other < due; ++other) {
            Node& node = *nodes[1 + other % (nodes.size() - 1)];
            node.beat(step);
            (void)node.await<Alive>();
        }
        const timespec pause{0, std::chrono::nanoseconds(kPause).count()};
        ::nanosleep(&pause, nullptr);
    }
    return times;
}

double percentile(std::vector<double> values, double share) {
    std::ranges::sort(values);
    return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}

struct Load {
    double ms = 0;
    std::size_t bytes = 0;
};

/// The median of some requests with a pause between them, so that none gets a cached answer.
Load load(std::uint16_t port, const std::string& path) {
    std::vector<double> times;
    std::size_t bytes = 0;
    for (int i = 0; i < 5; ++i) {
        const timespec pause{0, 600'000'000};
        ::nanosleep(&pause, nullptr);
        const auto begin = steady_clock::now();
        const int fd = dial(port);
        send_all(fd, request(path, false));
        bytes = 0;
        char buffer[65536];
        for (ssize_t count = 0; (count = ::read(fd, buffer, sizeof buffer)) > 0;) {
            bytes += static_cast<std::size_t>(count);
        }
        ::close(fd);
        times.push_back(ms_since(begin));
    }
    return {summarize(times).median, bytes};
}

void run(int rounds, const std::vector<std::uint32_t>& sizes) {
    raise_descriptor_limit();
    print_head("Viewers of a daemon");
    std::printf(
        "Round trip of a heartbeat, without and with %d viewers and a scrape each second.\n\n",
        kViewers);
    Table trips({"nodes", "median ms", "with", "ratio", "p99 ms", "with", "worst ms", "with"});
    Table loads({"nodes", "scrape ms", "KiB", "jobs' JSON ms", "KiB", "page ms", "KiB"});
    double ratio_max = 0;
    double tail_max = 0;
    for (const std::uint32_t size : sizes) {
        const Child daemon(1, serve);
        const std::uint16_t port = daemon.ports().front();
        Nodes nodes;
        for (std::uint32_t i = 0; i < size; ++i) {
            nodes.push_back(std::make_unique<Node>(port, i, size));
        }
        for (const auto& node : nodes) {
            node->take_part();
        }
        std::vector<double> without;
        std::vector<double> with;
        std::uint64_t step = 0;
        for (int round = 0; round < rounds; ++round) {
            for (const double time : measure(nodes, step)) {
                without.push_back(time);
            }
            const Child viewers([&] { view(port); });
            for (const double time : measure(nodes, step)) {
                with.push_back(time);
            }
        }
        const Summary a = summarize(without);
        const Summary b = summarize(with);
        trips.add({std::to_string(size), fixed(a.median, 3), fixed(b.median, 3),
                   fixed(b.median / a.median, 2), fixed(percentile(without, 0.99), 2),
                   fixed(percentile(with, 0.99), 2), fixed(a.worst, 1), fixed(b.worst, 1)});
        ratio_max = std::max(ratio_max, b.median / a.median);
        tail_max = std::max(tail_max, percentile(with, 0.99) - percentile(without, 0.99));
        std::vector<std::string> row{std::to_string(size)};
        for (const char* path : {"/metrics", "/api/v1/jobs", "/"}) {
            const Load each = load(port, path);
            row.push_back(fixed(each.ms, 2));
            row.push_back(fixed(static_cast<double>(each.bytes) / 1024, 0));
        }
        loads.add(row);
    }
    trips.print();
    std::printf("\n");
    loads.print();
    std::printf("\n");
    print_verdict("median with viewers / without", ratio_max, Aim::at_most, kMedianRatioMax);
    print_verdict("99th percentile: more ms with viewers", tail_max, Aim::at_most, kTailMsMax);
}

}  // namespace
}  // namespace regroup::bench

int main(int argc, char** argv) {
    const int rounds = argc > 1 ? std::atoi(argv[1]) : 3;
    std::vector<std::uint32_t> sizes;
    for (int i = 2; i < argc; ++i) {
        sizes.push_back(static_cast<std::uint32_t>(std::atoi(argv[i])));
    }
    if (sizes.empty()) {
        sizes = {10, 100, 1000};
    }
    if (rounds < 1 ||
        std::ranges::any_of(sizes, [](auto size) { return size < 2 || size > 10000; })) {
        std::fprintf(stderr, "http_bench: ROUNDS must be positive, NODES from 2 to 10000\n");
        return 2;
    }
    regroup::bench::run(rounds, sizes);
    return 0;
}
