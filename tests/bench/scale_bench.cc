// SPDX-License-Identifier: Apache-2.0
//
// A daemon and the nodes of one job on real sockets, by the number of nodes:
//
//     scale_bench [--svg FILE] [NODES...]
//
// For each way to prove who is who and each number of nodes: all join; one is lost; all send
// heartbeats, without and with people who look; the daemon is killed, and another one takes up its
// journal. The daemon and all nodes are two processes of one machine. With a token, the daemon runs
// as another user, which takes root: so the nodes prove themselves as on other hosts.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <malloc.h>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/base/wall_clock.h"
#include "rendezvous/journal/sqlite_journal.h"
#include "rendezvous/security/token.h"
#include "rendezvous/server/daemon.h"
#include "tests/bench/child.h"
#include "tests/bench/plot.h"
#include "tests/bench/report.h"
#include "tests/bench/scale_fleet.h"
#include "tests/support/temporary_directory.h"

namespace regroup::bench {
namespace {

using namespace rendezvous;  // NOLINT: the values of the protocol.
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr uid_t kOtherUser = 54321;
constexpr milliseconds kRetryPause(1);
constexpr std::chrono::seconds kIdle(10);
// Connections besides those of the nodes.
constexpr std::size_t kOtherDescriptors = 100;

/// When a daemon listened, and when it had read its journal.
struct Milestones {
    std::atomic<bool> port_is_free = true;
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
    void listen_later() {
        timer_.expires_after(kRetryPause);
        timer_.async_wait([this](const boost::system::error_code& /*error*/) { listen(); });
    }
    void listen() {
        if (!milestones_.port_is_free) {
            listen_later();  // An attempt is dear: it looks for the holder of the port.
            return;
        }
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
        setup.log = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
        auto daemon = open_daemon(io_, clock, std::move(setup));
        if (daemon) {
            daemon_ = *std::move(daemon);
            return;
        }
        if (port_ == 0) {
            give_up(daemon.error().detail);
        }
        listen_later();
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

/// The daemon's part, for each node.
struct Costs {
    std::uint32_t nodes = 0;
    double join_us = 0;
    double reform_us = 0;
    double beat_us = 0;
    double kib = 0;
};
using CostsByWay = std::map<std::string, std::vector<Costs>>;

struct Tables {
    Table rounds{{"way, nodes", "joined s", "formed after last join s", "re-formed ms", "CPU ms",
                  "KiB a node"}};
    Table idle{{"way, nodes", "heartbeats, % of a core", "us each", "p50 ms", "p99 ms",
                "p99 ms, looked at"}};
    Table storm{{"way, nodes", "journal KiB", "read ms", "all back s", "not in their round"}};
    Table looks{{"nodes", "jobs ms", "KiB", "metrics ms", "KiB", "events ms", "KiB"}};
};

Costs measure(const std::string& way, const security::Credentials& credentials, std::uint32_t size,
              Milestones& milestones, Tables& tables) {
    const testing::TemporaryDirectory directory;
    std::filesystem::permissions(directory.path(), std::filesystem::perms::all);
    const std::string folder = directory.path() + "/state";
    const std::string label = way + ", " + std::to_string(size);
    milestones.port_is_free = true;
    auto daemon = start_daemon(credentials, folder, 0, milestones);
    const std::uint16_t port = daemon->ports()[0];
    // It begins to listen when the other one is dead.
    milestones.port_is_free = false;
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
    Costs costs;
    costs.nodes = size;
    costs.join_us = (full.cpu_ms - empty.cpu_ms) * 1000 / size;
    costs.kib = (full.memory_kib - empty.memory_kib) / size;

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
    costs.reform_us = (after.cpu_ms - before.cpu_ms) * 1000 / size;
    fleet.run_for(std::chrono::seconds(3));

    const std::size_t journal = bytes_in(folder);
    const RoundId round = fleet.nodes[0]->round();
    milestones.restored_ns = 0;
    const auto killed = steady_clock::now();
    daemon.reset();
    milestones.port_is_free = true;
    fleet.back = 0;
    for (const auto& node : fleet.nodes) {
        node->forget();
    }
    fleet.await(fleet.back, size - 1, "came back");
    const double back = ms_since(killed);
    fleet.run_for(std::chrono::seconds(10));  // Later events count, too.
    const auto elsewhere = std::ranges::count_if(fleet.nodes, [&](const auto& node) {
        return node != fleet.nodes[size / 2] && (!node->is_up() || node->round() != round);
    });
    tables.rounds.add({label, fixed(joined / 1000, 2), fixed(formed / 1000, 2), fixed(reformed, 0),
                       fixed(after.cpu_ms - before.cpu_ms, 0), fixed(costs.kib, 1)});
    const double beats = static_cast<double>(std::max<std::size_t>(1, quiet.size()));
    costs.beat_us = (rested.cpu_ms - full.cpu_ms) * 1000 / beats;
    tables.idle.add({label, fixed((rested.cpu_ms - full.cpu_ms) / (10.0 * kIdle.count()), 1),
                     fixed(costs.beat_us, 1), fixed(percentile(quiet, 0.5), 2),
                     fixed(percentile(quiet, 0.99), 1), fixed(percentile(looked, 0.99), 1)});
    tables.storm.add(
        {label, fixed(static_cast<double>(journal) / 1024, 0),
         fixed(static_cast<double>(milestones.restored_ns - milestones.listens_ns) / 1e6, 0),
         fixed(back / 1000, 2), std::to_string(elsewhere)});
    std::printf(
        "%s: joined after %s s, formed %s s after the last join, re-formed in %s ms, all "
        "back after %s s\n",
        label.c_str(), fixed(joined / 1000, 2).c_str(), fixed(formed / 1000, 2).c_str(),
        fixed(reformed, 0).c_str(), fixed(back / 1000, 2).c_str());
    std::fflush(stdout);
    return costs;
}

/// By least squares: the cost of all nodes together grows with this power of their number.
double power_of(const std::vector<Costs>& all, double Costs::* cost) {
    double count = 0, x = 0, y = 0, xx = 0, xy = 0;
    for (const Costs& costs : all) {
        const double log_nodes = std::log(static_cast<double>(costs.nodes));
        const double log_cost = log_nodes + std::log(std::max(costs.*cost, 0.001));
        count += 1;
        x += log_nodes;
        y += log_cost;
        xx += log_nodes * log_nodes;
        xy += log_nodes * log_cost;
    }
    return (count * xy - x * y) / (count * xx - x * x);
}

Plot plot_of(const CostsByWay& ways) {
    Plot plot;
    plot.title = "What a node costs the daemon";
    plot.subtitle = "one job on real sockets; daemon and nodes share two cores";
    plot.x_label = "nodes";
    plot.y_label = "CPU us for each node";
    for (const auto& [way, all] : ways) {
        const bool is_token = way == "token";
        Series join{
            way + ": to join", is_token ? "#b5401f" : "#1f6fb5", Series::Style::measured, {}};
        Series reform{
            way + ": to form again", is_token ? "#e0a080" : "#80b0e0", Series::Style::measured, {}};
        for (const Costs& costs : all) {
            join.points.emplace_back(costs.nodes, costs.join_us);
            reform.points.emplace_back(costs.nodes, costs.reform_us);
            plot.x_ticks.push_back(costs.nodes);
        }
        plot.series.push_back(join);
        plot.series.push_back(reform);
    }
    std::ranges::sort(plot.x_ticks);
    plot.x_ticks.erase(std::ranges::unique(plot.x_ticks).begin(), plot.x_ticks.end());
    return plot;
}

void print_costs(const CostsByWay& ways) {
    Table table({"CPU us for each node", "join", "form again", "heartbeat", "KiB"});
    for (const auto& [way, all] : ways) {
        for (const Costs& costs : all) {
            table.add({way + ", " + std::to_string(costs.nodes), fixed(costs.join_us, 0),
                       fixed(costs.reform_us, 0), fixed(costs.beat_us, 0), fixed(costs.kib, 1)});
        }
        if (all.size() > 1) {
            table.add(
                {way + ": all nodes cost N to the power", fixed(power_of(all, &Costs::join_us), 2),
                 fixed(power_of(all, &Costs::reform_us), 2),
                 fixed(power_of(all, &Costs::beat_us), 2), fixed(power_of(all, &Costs::kib), 2)});
        }
    }
    std::printf("\n");
    table.print();
}

/// False if nodes did not come to a state in time.
bool run(const std::vector<std::uint32_t>& sizes, const std::string& svg) {
    const std::size_t most = raise_descriptor_limit() / 2 - kOtherDescriptors;
    print_head("One job by the number of its nodes, on real sockets");
    auto* const milestones = new (::mmap(nullptr, sizeof(Milestones), PROT_READ | PROT_WRITE,
                                         MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Milestones();
    Tables tables;
    CostsByWay ways;
    bool complete = true;
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
            const std::string way = secured ? "token" : "one user";
            // A daemon takes half as many connections as it may open descriptors.
            const auto nodes = static_cast<std::uint32_t>(std::min<std::size_t>(size, most));
            try {
                ways[way].push_back(measure(way, credentials, nodes, *milestones, tables));
            } catch (const Unfinished& unfinished) {
                std::printf("%s, %u: %s\n", way.c_str(), nodes, unfinished.what());
                complete = false;
            }
        }
    }
    for (const Table* table : {&tables.rounds, &tables.idle, &tables.storm, &tables.looks}) {
        std::printf("\n");
        table->print();
    }
    print_costs(ways);
    if (!svg.empty() && !(std::ofstream(svg) << to_svg(plot_of(ways))).flush()) {
        give_up("cannot write " + svg);
    }
    return complete;
}

}  // namespace
}  // namespace regroup::bench

int main(int argc, char** argv) {
    std::vector<std::uint32_t> sizes;
    std::string svg;
    for (int i = 1; i < argc; ++i) {
        if (std::string_view(argv[i]) == "--svg" && i + 1 < argc) {
            svg = argv[++i];
        } else {
            sizes.push_back(static_cast<std::uint32_t>(std::atoi(argv[i])));
        }
    }
    if (sizes.empty()) {
        sizes = {1000, 3000, 10000};
    }
    if (std::ranges::any_of(sizes, [](auto size) { return size < 2 || size > 16000; })) {
        std::fprintf(stderr, "usage: scale_bench [--svg FILE] [NODES...], each from 2 to 16000\n");
        return 2;
    }
    return regroup::bench::run(sizes, svg) ? 0 : 1;
}
