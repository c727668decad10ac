// SPDX-License-Identifier: Apache-2.0
//
// The cost of trust between hosts, for each way to prove who is who:
//
//     trust_bench [JOINS [NODES]]
//
// join: from the start of a client to the daemon's first answer, one after another. reconnect: all
// nodes of a job at once, until the last has its assignment, with the daemon's CPU time and memory.
// Daemon and clients are two processes of one machine. To make them prove themselves all the same,
// the daemon runs as another user, which takes root.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <malloc.h>
#include <memory>
#include <optional>
#include <string>
#include <unistd.h>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/client/control_client.h"
#include "rendezvous/security/token.h"
#include "rendezvous/server/daemon.h"
#include "tests/bench/child.h"
#include "tests/bench/report.h"

namespace regroup::bench {
namespace {

using namespace rendezvous;  // NOLINT: the values of the protocol.
using std::chrono::steady_clock;

constexpr int kDefaultJoins = 200;
constexpr std::uint32_t kDefaultNodes = 1000;
constexpr uid_t kOtherUser = 54321;
constexpr Duration kLimit = std::chrono::seconds(60);

/// One way to prove who is who.
struct Way {
    std::string name;
    security::Credentials credentials;
    bool is_other_user = true;  ///< The daemon runs as another user.
};

/// A folder with a certificate authority and one certificate for 127.0.0.1.
std::optional<security::Certificates> make_certificates(const std::filesystem::path& folder) {
    const std::string script =
        "cd '" + folder.string() +
        "' && exec 2>/dev/null && "
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 "
        "-subj /CN=authority -keyout ca.key -out ca.pem && "
        "openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=node "
        "-keyout node.key -out node.csr && "
        "printf 'subjectAltName=IP:127.0.0.1\\n' > ext && "
        "openssl x509 -req -in node.csr -CA ca.pem -CAkey ca.key -days 1 -extfile ext "
        "-out node.pem && chmod 644 *";
    if (std::system(script.c_str()) != 0) {  // NOLINT: a fixed script.
        return std::nullopt;
    }
    return security::Certificates{folder / "node.pem", folder / "node.key", folder / "ca.pem"};
}

Child daemon_for(const Way& way) {
    return Child(1, [&way](boost::asio::io_context& io, Ports& ports) -> std::shared_ptr<void> {
        if (way.is_other_user && (::setgid(kOtherUser) != 0 || ::setuid(kOtherUser) != 0)) {
            give_up("become another user");
        }
        ::malloc_trim(0);  // Frees the remains of earlier daemons' clients.
        static const SteadyClock clock;
        DaemonSetup setup;
        setup.address = "127.0.0.1";
        setup.credentials = way.credentials;
        auto daemon = open_daemon(io, clock, std::move(setup));
        if (!daemon) {
            give_up(daemon.error().detail);
        }
        ports = {(*daemon)->port()};
        return *std::move(daemon);
    });
}

/// A node that joins and waits for its assignment.
class Node {
   public:
    Node(boost::asio::io_context& io, const Way& way, std::uint16_t port, const std::string& job,
         std::uint32_t index, std::uint32_t nodes, std::function<void()> on_assigned) {
        Join join;
        join.job = job;
        join.node = "node" + std::to_string(index);
        join.policy.nodes_min = join.policy.nodes_max = nodes;
        join.policy.heartbeat_timeout = std::chrono::seconds(30);
        join.offer.name = join.node;
        join.report.store_port = 1;
        ControlClient::Handlers handlers;
        handlers.on_up = [this, join] { client_->send(join); };
        handlers.on_message = [assigned = std::move(on_assigned)](const FromDaemon& message) {
            if (std::holds_alternative<Assign>(message)) {
                assigned();
            }
        };
        handlers.on_down = [] {};
        handlers.on_trouble = [](const std::string& reason, bool /*answered*/) {
            std::fprintf(stderr, "trust_bench: %s\n", reason.c_str());
        };
        client_ = std::make_unique<ControlClient>(
            io, std::vector<Endpoint>{{"127.0.0.1", port}}, std::move(handlers), kLimit,
            security::Identity{way.credentials, {security::Role::node, job}});
        client_->start();
    }

   private:
    std::unique_ptr<ControlClient> client_;
};

/// Milliseconds until all nodes of one new job have their assignment.
double form(const Way& way, std::uint16_t port, const std::string& job, std::uint32_t nodes) {
    boost::asio::io_context io(1);
    std::uint32_t assigned = 0;
    std::vector<std::unique_ptr<Node>> all;
    const auto begin = steady_clock::now();
    for (std::uint32_t i = 0; i < nodes; ++i) {
        all.push_back(std::make_unique<Node>(io, way, port, job, i, nodes, [&] {
            if (++assigned == nodes) {
                io.stop();
            }
        }));
    }
    io.run_for(kLimit);
    if (assigned < nodes) {
        give_up(std::to_string(assigned) + " nodes were assigned");
    }
    return ms_since(begin);
}

std::vector<Way> ways(const std::filesystem::path& folder) {
    std::vector<Way> all{{"same user, this host", {}, false}};
    if (::geteuid() != 0) {
        std::printf("Only root can run the daemon as another user: the rest is left out.\n");
        return all;
    }
    security::Credentials insecure;
    insecure.insecure = true;
    all.push_back({"--insecure", insecure});
    security::Credentials token;
    token.token = security::Token::generate();
    all.push_back({"token", token});
    security::Credentials certificates;
    certificates.certificates = make_certificates(folder);
    if (certificates.certificates) {
        all.push_back({"certificates", certificates});
    } else {
        std::printf("The program openssl cannot make certificates here: left out.\n");
    }
    return all;
}

void run(int joins, std::uint32_t nodes) {
    std::string pattern = (std::filesystem::temp_directory_path() / "trustXXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) {
        give_up("mkdtemp");
    }
    const std::filesystem::path folder = pattern;
    std::filesystem::permissions(folder, std::filesystem::perms(0755));
    raise_descriptor_limit();
    print_head("Trust between hosts");
    std::printf("join: one node, %d times, median (worst). reconnect: %u nodes at once.\n\n", joins,
                nodes);
    Table table({"way", "join ms", "reconnect ms", "daemon's CPU ms", "KiB per node"});
    for (const Way& way : ways(folder)) {
        const Child daemon = daemon_for(way);
        std::vector<double> times;
        for (int i = 0; i < joins; ++i) {
            times.push_back(form(way, daemon.ports()[0], "join" + std::to_string(i), 1));
        }
        const Summary join = summarize(times);
        const Child other = daemon_for(way);
        const Child::Spent before = other.spent();
        const double all = form(way, other.ports()[0], "all", nodes);
        const Child::Spent after = other.spent();
        table.add({way.name, fixed(join.median, 2) + " (" + fixed(join.worst, 2) + ")",
                   fixed(all, 0), fixed(after.cpu_ms - before.cpu_ms, 0),
                   fixed((after.memory_kib - before.memory_kib) / nodes, 1)});
    }
    table.print();
    std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace regroup::bench

int main(int argc, char** argv) {
    const int joins = argc > 1 ? std::atoi(argv[1]) : regroup::bench::kDefaultJoins;
    const int nodes =
        argc > 2 ? std::atoi(argv[2]) : static_cast<int>(regroup::bench::kDefaultNodes);
    if (joins < 1 || nodes < 1 || nodes > 10000) {
        std::fprintf(stderr, "trust_bench: JOINS must be positive, NODES from 1 to 10000\n");
        return 2;
    }
    regroup::bench::run(joins, static_cast<std::uint32_t>(nodes));
    return 0;
}
