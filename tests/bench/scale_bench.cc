// SPDX-License-Identifier: Apache-2.0
//
// A daemon and the nodes of one job on real sockets, by the number of nodes:
//
//     scale_bench [NODES...]
//
// For each way to prove who is who and each number of nodes: all join; one is lost; all send
// heartbeats, without and with people who look; the daemon is killed, and another one takes up its
// journal. The daemon and all nodes are two processes of one machine. With a token, the daemon runs
// as another user, which takes root: so the nodes prove themselves as on other hosts.
#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <malloc.h>
#include <memory>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/base/wall_clock.h"
#include "rendezvous/client/control_client.h"
#include "rendezvous/journal/sqlite_journal.h"
#include "rendezvous/security/token.h"
#include "rendezvous/server/daemon.h"
#include "tests/bench/child.h"
#include "tests/bench/report.h"
#include "tests/support/temporary_directory.h"

namespace regroup::bench {
namespace {

using namespace rendezvous;  // NOLINT: the values of the protocol.
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr uid_t kOtherUser = 54321;
constexpr Duration kLimit = std::chrono::minutes(2);
constexpr Duration kInterval = std::chrono::seconds(1);  // Between two heartbeats of a node.
constexpr milliseconds kTick(1);
constexpr std::chrono::seconds kIdle(10);
constexpr const char* kJob = "scale";
// Connections besides those of the nodes.
constexpr std::size_t kOtherDescriptors = 100;

/// When a daemon listened, and when it had read its journal.
struct Milestones {
    std::atomic<std::int64_t> listens_ns = 0;
    std::atomic<std::int64_t> restored_ns = 0;
};

std::int64_t now_ns() {
    return steady_clock::now().time_since_epoch().count();
}

/// A daemon that listens on a port as soon as that is free.
class Successor {
   public:
    Successor(boost::asio::io_context& io, security::Credentials credentials, std::string folder,
              std::uint16_t port, Milestones& milestones)
        : io_(io),
          timer_(io),
          credentials_(std::move(credentials)),
          folder_(std::move(folder)),
          port_(port),
          milestones_(milestones) {
        listen();
    }
    [[nodiscard]] std::uint16_t port() const { return daemon_ ? daemon_->port() : port_; }

   private:
    void listen() {
        static const SteadyClock clock;
        DaemonSetup setup;
        setup.address = "127.0.0.1";
        setup.port = port_;
        setup.credentials = credentials_;
        setup.open_journal = [this](std::uint16_t /*port*/) {
            milestones_.listens_ns = now_ns();
            auto journal = journal::SqliteJournal::open(folder_, wall_ms());
            return journal ? Result<std::unique_ptr<journal::Journal>>(*std::move(journal))
                           : journal.error();
        };
        setup.journal_log = [this](const std::string& line) {
            if (line.find("taken up again") != std::string::npos) {
                milestones_.restored_ns = now_ns();
            }
        };
        auto daemon = open_daemon(io_, clock, std::move(setup));
        if (daemon) {
            daemon_ = *std::move(daemon);
            return;
        }
        if (port_ == 0) {
            give_up(daemon.error().detail);
        }
        timer_.expires_after(kTick);
        timer_.async_wait([this](const boost::system::error_code& /*error*/) { listen(); });
    }

    boost::asio::io_context& io_;
    boost::asio::steady_timer timer_;
    security::Credentials credentials_;
    std::string folder_;
    std::uint16_t port_;
    Milestones& milestones_;
    std::unique_ptr<Daemon> daemon_;
};

std::unique_ptr<Child> start_daemon(const security::Credentials& credentials,
                                    const std::string& folder, std::uint16_t port,
                                    Milestones& milestones) {
    return std::make_unique<Child>(
        1, [&](boost::asio::io_context& io, Ports& ports) -> std::shared_ptr<void> {
            if (credentials.token && (::setgid(kOtherUser) != 0 || ::setuid(kOtherUser) != 0)) {
                give_up("become another user");
            }
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // It ends with a change of the user.
            ::malloc_trim(0);
            auto daemon = std::make_shared<Successor>(io, credentials, folder, port, milestones);
            ports = {daemon->port()};
            return daemon;
        });
}

class Fleet;

/// An agent, as far as the daemon sees it. Its workers obey at once.
class Node {
   public:
    Node(Fleet& fleet, std::uint32_t index);
    void start() { client_->start(); }
    void beat();
    /// It is told to the daemon, as by the warden of an agent.
    void die() {
        client_->send(Leave{"killed", true});
        client_->stop(kClientStopLimit, [] {});
        up_ = false;
    }
    [[nodiscard]] RoundId round() const { return report_.round; }
    [[nodiscard]] bool is_up() const { return up_; }

   private:
    void hear(const FromDaemon& message);
    void join();
    void report() { client_->send(Report{report_, {}, {}, {}}); }

    Fleet& fleet_;
    Join join_;
    NodeReport report_{};
    bool up_ = false;
    steady_clock::time_point beat_at_{};  // Of the heartbeat that is not answered yet.
    std::unique_ptr<ControlClient> client_;
};

/// All nodes of a job.
class Fleet {
   public:
    Fleet(std::uint32_t size, std::uint16_t port, security::Credentials credentials)
        : size(size), port(port), credentials(std::move(credentials)), timer_(io) {
        for (std::uint32_t i = 0; i < size; ++i) {
            nodes.push_back(std::make_unique<Node>(*this, i));
        }
        beat_at_ = steady_clock::now();
        tick();
    }

    /// Until `counted` has come to `wanted`.
    void await(const std::uint32_t& counted, std::uint32_t wanted, const char* what) {
        const auto until = steady_clock::now() + kLimit;
        while (counted < wanted) {
            if (steady_clock::now() > until) {
                give_up(std::to_string(counted) + " of " + std::to_string(wanted) + " nodes " +
                        what);
            }
            io.run_one_for(milliseconds(100));
        }
    }
    void run_for(Duration time) { io.run_for(time); }

    boost::asio::io_context io{1};
    const std::uint32_t size;
    const std::uint16_t port;
    const security::Credentials credentials;
    std::vector<std::unique_ptr<Node>> nodes;
    std::uint32_t assigned = 0;  ///< Nodes that were assigned since this was set to 0.
    std::uint32_t answered = 0;  ///< Nodes that came back and were told to go on.
    steady_clock::time_point last_join{};
    std::vector<double> answers_ms;  ///< To heartbeats.

   private:
    /// A node sends a heartbeat when it is its turn, one node after another.
    void tick() {
        const auto now = steady_clock::now();
        const auto gap = kInterval / size;
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

    boost::asio::steady_timer timer_;
    steady_clock::time_point beat_at_{};
    std::size_t next_ = 0;
};

Node::Node(Fleet& fleet, std::uint32_t index) : fleet_(fleet) {
    join_.job = kJob;
    join_.node = "node" + std::to_string(10000 + index) + "-12345-00c0ffee";
    join_.policy.nodes_min = fleet.size - 1;
    join_.policy.nodes_max = fleet.size;
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
    handlers.on_trouble = [](const std::string& /*reason*/, bool /*answered*/) {};
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
        ++fleet_.answered;
    } else if (const auto* refused = std::get_if<Refused>(&message)) {
        std::fprintf(stderr, "scale_bench: refused: %d\n", static_cast<int>(refused->code));
    }
    if (beat_at_ != steady_clock::time_point{}) {
        fleet_.answers_ms.push_back(ms_since(std::exchange(beat_at_, {})));
    }
}

double percentile(std::vector<double> values, double share) {
    if (values.empty()) {
        return 0;
    }
    std::ranges::sort(values);
    return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}

struct Load {
    std::string path;
    double ms = 0;
    std::size_t bytes = 0;
};

/// One GET of each, one after another.
std::vector<Load> look(std::uint16_t port) {
    std::vector<Load> loads{{"/api/v1/jobs"}, {"/metrics"}, {"/api/v1/events?job=scale"}};
    for (Load& load : loads) {
        const auto begin = steady_clock::now();
        const int fd = dial(port);
        const std::string request =
            "GET " + load.path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        if (::send(fd, request.data(), request.size(), MSG_NOSIGNAL) < 0) {
            give_up("send");
        }
        char buffer[65536];
        for (ssize_t count = 0; (count = ::read(fd, buffer, sizeof buffer)) > 0;) {
            load.bytes += static_cast<std::size_t>(count);
        }
        ::close(fd);
        load.ms = ms_since(begin);
    }
    return loads;
}

std::size_t bytes_in(const std::string& folder) {
    std::size_t bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        bytes += entry.is_regular_file() ? entry.file_size() : 0;
    }
    return bytes;
}

struct Tables {
    Table rounds{{"way, nodes", "joined s", "formed after last join s", "re-formed ms", "CPU ms",
                  "KiB a node"}};
    Table idle{{"way, nodes", "heartbeats, % of a core", "us each", "p50 ms", "p99 ms",
                "p99 ms, looked at"}};
    Table storm{{"way, nodes", "journal KiB", "read ms", "all back s", "not in their round"}};
    Table looks{{"nodes", "jobs ms", "KiB", "metrics ms", "KiB", "events ms", "KiB"}};
};

void measure(const std::string& way, const security::Credentials& credentials, std::uint32_t size,
             Milestones& milestones, Tables& tables) {
    const testing::TemporaryDirectory directory;
    std::filesystem::permissions(directory.path(), std::filesystem::perms::all);
    const std::string folder = directory.path() + "/state";
    const std::string label = way + ", " + std::to_string(size);
    auto daemon = start_daemon(credentials, folder, 0, milestones);
    const std::uint16_t port = daemon->ports()[0];
    // It begins to listen when the other one is dead.
    auto successor = start_daemon(credentials, folder, port, milestones);
    const Child::Spent empty = daemon->spent();
    Fleet fleet(size, port, credentials);

    const auto begin = steady_clock::now();
    for (const auto& node : fleet.nodes) {
        node->start();
    }
    fleet.await(fleet.assigned, size, "were assigned");
    const double formed = ms_since(fleet.last_join);
    const double joined = ms_since(begin) - formed;
    fleet.run_for(std::chrono::seconds(3));
    const Child::Spent full = daemon->spent();

    fleet.answers_ms.clear();
    fleet.run_for(kIdle);
    const Child::Spent rested = daemon->spent();
    const std::vector<double> quiet = std::exchange(fleet.answers_ms, {});
    std::vector<double> looked;
    if (!credentials.token) {
        std::vector<Load> loads;
        std::atomic<bool> done = false;
        std::thread viewer([&] {
            for (int i = 0; i < 5; ++i) {
                loads = look(port);
                std::this_thread::sleep_for(milliseconds(1000));
            }
            done = true;
        });
        while (!done) {
            fleet.run_for(milliseconds(50));
        }
        viewer.join();
        looked = std::exchange(fleet.answers_ms, {});
        std::vector<std::string> row{std::to_string(size)};
        for (const Load& load : loads) {
            row.push_back(fixed(load.ms, 1));
            row.push_back(fixed(static_cast<double>(load.bytes) / 1024, 0));
        }
        tables.looks.add(row);
    }

    const Child::Spent before = daemon->spent();
    fleet.assigned = 0;
    const auto lost = steady_clock::now();
    fleet.nodes[size / 2]->die();
    fleet.await(fleet.assigned, size - 1, "were assigned again");
    const double reformed = ms_since(lost);
    const Child::Spent after = daemon->spent();
    fleet.run_for(std::chrono::seconds(3));

    const std::size_t journal = bytes_in(folder);
    const RoundId round = fleet.nodes[0]->round();
    milestones.restored_ns = 0;
    const auto killed = steady_clock::now();
    daemon.reset();
    fleet.answered = fleet.assigned = 0;
    fleet.await(fleet.answered, size - 1, "came back");
    const double back = ms_since(killed);
    fleet.run_for(std::chrono::seconds(10));  // Later events count, too.
    const auto elsewhere = std::ranges::count_if(
        fleet.nodes, [&](const auto& node) { return node->round() != round; });
    tables.rounds.add({label, fixed(joined / 1000, 2), fixed(formed / 1000, 2), fixed(reformed, 0),
                       fixed(after.cpu_ms - before.cpu_ms, 0),
                       fixed((full.memory_kib - empty.memory_kib) / size, 1)});
    const double beats = static_cast<double>(std::max<std::size_t>(1, quiet.size()));
    tables.idle.add({label, fixed((rested.cpu_ms - full.cpu_ms) / (10.0 * kIdle.count()), 1),
                     fixed((rested.cpu_ms - full.cpu_ms) * 1000 / beats, 1),
                     fixed(percentile(quiet, 0.5), 2), fixed(percentile(quiet, 0.99), 1),
                     fixed(percentile(looked, 0.99), 1)});
    tables.storm.add(
        {label, fixed(static_cast<double>(journal) / 1024, 0),
         fixed(static_cast<double>(milestones.restored_ns - milestones.listens_ns) / 1e6, 0),
         fixed(back / 1000, 2), std::to_string(elsewhere)});
    std::printf("%s: done\n", label.c_str());
    std::fflush(stdout);
}

void run(const std::vector<std::uint32_t>& sizes) {
    const std::size_t most = raise_descriptor_limit() / 2 - kOtherDescriptors;
    print_head("One job by the number of its nodes, on real sockets");
    auto* const milestones = new (::mmap(nullptr, sizeof(Milestones), PROT_READ | PROT_WRITE,
                                         MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Milestones();
    Tables tables;
    for (const bool secured : {false, true}) {
        security::Credentials credentials;
        if (secured) {
            credentials.token = security::Token::generate();
        }
        if (secured && ::geteuid() != 0) {
            std::printf("Only root can run the daemon as another user: tokens are left out.\n");
            break;
        }
        for (const std::uint32_t size : sizes) {
            // A daemon takes half as many connections as it may open descriptors.
            measure(secured ? "token" : "one user", credentials,
                    static_cast<std::uint32_t>(std::min<std::size_t>(size, most)), *milestones,
                    tables);
        }
    }
    for (const Table* table : {&tables.rounds, &tables.idle, &tables.storm, &tables.looks}) {
        std::printf("\n");
        table->print();
    }
}

}  // namespace
}  // namespace regroup::bench

int main(int argc, char** argv) {
    std::vector<std::uint32_t> sizes;
    for (int i = 1; i < argc; ++i) {
        sizes.push_back(static_cast<std::uint32_t>(std::atoi(argv[i])));
    }
    if (sizes.empty()) {
        sizes = {1000, 3000, 10000};
    }
    if (std::ranges::any_of(sizes, [](auto size) { return size < 2 || size > 16000; })) {
        std::fprintf(stderr, "scale_bench: NODES from 2 to 16000\n");
        return 2;
    }
    regroup::bench::run(sizes);
    return 0;
}
