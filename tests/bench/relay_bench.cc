// SPDX-License-Identifier: Apache-2.0
//
// The store of a round for the workers of many nodes, directly and through their agents.
//
//     relay_bench [--quick] [NODES WORKERS]
//
// The store and the agents of all nodes are two processes with one thread each; the workers are
// sockets of a third.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "rendezvous/net/listen.h"
#include "rendezvous/security/peer_user.h"
#include "rendezvous/store/store_wire.h"
#include "rendezvous/store_relay/relay_client.h"
#include "rendezvous/store_relay/relay_server.h"
#include "tests/bench/child.h"
#include "tests/bench/report.h"

namespace regroup::bench {
namespace {

using std::chrono::steady_clock;
using store::Opcode;
using store::Request;

constexpr const char* kName = "regroup store, round 1";
const std::string kValue(128, 'v');

boost::asio::ip::tcp::acceptor listen(boost::asio::io_context& io) {
    auto acceptor = net::listen_on(io, "127.0.0.1", 0);
    if (!acceptor) {
        give_up(acceptor.error().detail);
    }
    return std::move(*acceptor);
}

/// The sockets of a process.
std::size_t sockets_of(const Child& child) {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(child.folder() + "/fd")) {
        std::error_code error;
        const std::string target = std::filesystem::read_symlink(entry, error).string();
        count += target.starts_with("socket:") ? 1 : 0;
    }
    return count;
}

struct Served {
    explicit Served(boost::asio::io_context& io, const security::Key& key, Ports& ports)
        : server(io, [] {
              store::StoreServer::Options options;
              options.objection = [users = std::make_shared<security::PeerUsers>()](
                                      const auto& ours, const auto& theirs) {
                  return users->object_to_stranger(ours, theirs);
              };
              return options;
          }()) {
        auto direct = listen(io);
        auto relayed = listen(io);
        ports = {direct.local_endpoint().port(), relayed.local_endpoint().port()};
        server.serve(std::move(direct));
        relay =
            std::make_unique<store::RelayServer>(io, server, security::Tls::server(key, kName),
                                                 std::move(relayed), store::RelayServer::Options());
    }

    store::StoreServer server;
    std::unique_ptr<store::RelayServer> relay;
};

/// The workers of all nodes.
class Workers {
   public:
    Workers(const Ports& ports, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) {
            sockets_.push_back(dial(ports[i * ports.size() / count]));
        }
    }
    ~Workers() {
        for (const int fd : sockets_) {
            ::close(fd);
        }
    }
    Workers(const Workers&) = delete;
    Workers& operator=(const Workers&) = delete;

    /// Each of the first `count` workers sends the requests; returns when all have their replies.
    void exchange(const std::vector<Request>& requests, std::size_t reply_bytes,
                  std::size_t count) {
        std::string bytes;
        for (const Request& request : requests) {
            encode(request, bytes);
        }
        for (std::size_t i = 0; i < count; ++i) {
            if (::send(sockets_[i], bytes.data(), bytes.size(), MSG_NOSIGNAL) !=
                static_cast<ssize_t>(bytes.size())) {
                give_up("send");
            }
        }
        std::string reply(reply_bytes, '\0');
        for (std::size_t i = 0; i < count; ++i) {
            if (::recv(sockets_[i], reply.data(), reply.size(), MSG_WAITALL) !=
                static_cast<ssize_t>(reply.size())) {
                give_up("a worker lost the store");
            }
        }
    }

   private:
    std::vector<int> sockets_;
};

struct Figures {
    std::size_t connections = 0;  ///< At the store.
    std::vector<double> connect_ms, get_us, set_us, barrier_ms, gets_per_second;
};

void measure(const Child& store, const Ports& ports, std::size_t count, int rounds,
             Figures& figures) {
    const std::vector<Request> greeting{{Opcode::validate, {}, store::kMagic},
                                        {Opcode::ping, {}, 7}};
    const std::vector<Request> set{{Opcode::set, {"/key", kValue}, 0}, {Opcode::ping, {}, 7}};
    const std::vector<Request> get{{Opcode::get, {"/key"}, 0}};
    static int barriers = 0;

    const std::size_t sockets_before = sockets_of(store);
    const auto begin = steady_clock::now();
    Workers workers(ports, count);
    workers.exchange(greeting, 4, count);
    figures.connect_ms.push_back(microseconds_since(begin) / 1000);
    figures.connections = sockets_of(store) - sockets_before;
    const auto timed = [&](const std::vector<Request>& requests, std::size_t reply_bytes,
                           std::size_t active) {
        const auto start = steady_clock::now();
        workers.exchange(requests, reply_bytes, active);
        return microseconds_since(start);
    };
    for (int i = 0; i < rounds; ++i) {
        figures.set_us.push_back(timed(set, 4, 1));
        figures.get_us.push_back(timed(get, 8 + kValue.size(), 1));
    }
    for (int i = 0; i < rounds / 20; ++i) {
        const std::string name = "/barrier" + std::to_string(++barriers);
        figures.barrier_ms.push_back(
            timed({{Opcode::barrier, {name}, static_cast<std::int64_t>(count)}}, 1, count) / 1000);
        figures.gets_per_second.push_back(static_cast<double>(count) * 1e6 /
                                          timed(get, 8 + kValue.size(), count));
    }
}

int run(std::size_t nodes, std::size_t workers, bool quick) {
    raise_descriptor_limit();
    print_head("relay: the store for " + std::to_string(nodes) + " nodes of " +
               std::to_string(workers) + " workers");
    const security::Key key = security::Key::random();
    const Child store(2, [&](boost::asio::io_context& io, Ports& ports) {
        return std::make_shared<Served>(io, key, ports);
    });
    std::map<std::string, Figures> all;
    for (int i = 0; i < (quick ? 1 : 5); ++i) {
        measure(store, {store.ports()[0]}, nodes * workers, quick ? 40 : 400, all["direct"]);
        // Fresh agents, so that the time to connect includes their handshakes.
        const Child agents(nodes, [&](boost::asio::io_context& io, Ports& ports) {
            auto relays = std::make_shared<std::vector<std::unique_ptr<store::RelayClient>>>();
            for (std::uint16_t& port : ports) {
                auto acceptor = listen(io);
                port = acceptor.local_endpoint().port();
                store::RelayClient::Options options;
                options.objection = [users = std::make_shared<security::PeerUsers>()](
                                        const auto& ours, const auto& theirs) {
                    return users->object_to_stranger(ours, theirs);
                };
                relays->push_back(std::make_unique<store::RelayClient>(
                    io, std::move(acceptor),
                    store::RelayClient::Server{"127.0.0.1", store.ports()[1]},
                    security::Tls::client(key, kName), std::move(options)));
            }
            return relays;
        });
        measure(store, agents.ports(), nodes * workers, quick ? 40 : 400, all["relayed"]);
    }
    Table table({"", "connections at the store", "connect all ms", "set us", "get us",
                 "barrier of all ms", "gets/s of all"});
    for (const char* name : {"direct", "relayed"}) {
        const Figures& figures = all[name];
        table.add({name, std::to_string(figures.connections),
                   fixed(summarize(figures.connect_ms).median, 1),
                   fixed(summarize(figures.set_us).median, 1),
                   fixed(summarize(figures.get_us).median, 1),
                   fixed(summarize(figures.barrier_ms).median, 2),
                   fixed(summarize(figures.gets_per_second).median, 0)});
    }
    table.print();
    return 0;
}

}  // namespace
}  // namespace regroup::bench

int main(int argc, char** argv) {
    std::vector<std::string> words(argv + 1, argv + argc);
    const bool quick = std::erase(words, "--quick") > 0;
    if (!words.empty() && words.size() != 2) {
        std::fputs("usage: relay_bench [--quick] [NODES WORKERS]\n", stderr);
        return 2;
    }
    const std::size_t nodes = words.empty() ? 64 : std::stoul(words[0]);
    const std::size_t workers = words.empty() ? 8 : std::stoul(words[1]);
    return regroup::bench::run(nodes, workers, quick);
}
