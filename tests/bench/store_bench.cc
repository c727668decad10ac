// SPDX-License-Identifier: Apache-2.0
//
// The cost of store operations, compared with a bare echo of the same bytes, PyTorch's servers and
// Redis.
//
//     store_bench REGROUP ECHO_SERVER STORE_PROGRAM [--quick] [PYTHON...]
//
// STORE_PROGRAM is the script that serves PyTorch's store. Each PYTHON is an interpreter with a
// PyTorch release. Servers are pinned to the first processor, the load to the second.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <sched.h>
#include <string>
#include <vector>

#include "rendezvous/store/store_wire.h"
#include "tests/bench/child.h"
#include "tests/bench/report.h"
#include "tests/bench/store_load.h"
#include "tests/support/program.h"

namespace regroup::bench {
namespace {

using std::chrono::milliseconds;
using store::Dialect;
using store::Opcode;
using store::Request;
using testing::Program;

const std::string kKey = "/default_pg/0//cpu//0/7";
const std::string kNumber = "/number";
const std::string kValue(128, 'v');
constexpr std::size_t kInFlightMax = 64;
/// Maximum number of client descriptors in this process.
constexpr std::size_t kClientsTogetherMax = 10000;

std::string bytes_of(const std::vector<Request>& requests, Dialect dialect) {
    std::string bytes;
    for (const Request& request : requests) {
        encode(request, bytes, dialect);
    }
    return bytes;
}

/// A set has no answer. So another request follows, the cheapest of the dialect, and its answer
/// marks the end.
Speech speak_store(const std::string& operation, Dialect dialect) {
    Speech speech;
    std::vector<Request> greeting{{Opcode::num_keys, {}}};
    if (dialect == Dialect::current) {
        greeting.insert(greeting.begin(), {Opcode::validate, {}, store::kMagic});
    }
    speech.greeting = {bytes_of(greeting, dialect), 8};
    speech.prepare = {bytes_of({{Opcode::set, {kKey, kValue}}, {Opcode::num_keys, {}}}, dialect),
                      8};
    if (operation == "get") {
        speech.operation = {bytes_of({{Opcode::get, {kKey}}}, dialect), 8 + kValue.size()};
    } else if (operation == "set") {
        speech.operation = speech.prepare;
    } else {
        speech.operation = {bytes_of({{Opcode::add, {kNumber}, 1}}, dialect), 8};
    }
    return speech;
}

std::string resp(const std::vector<std::string>& words) {
    std::string bytes = "*" + std::to_string(words.size()) + "\r\n";
    for (const std::string& word : words) {
        bytes += "$" + std::to_string(word.size()) + "\r\n" + word + "\r\n";
    }
    return bytes;
}

Speech speak_redis(const std::string& operation) {
    Speech speech;
    speech.greeting = {"PING\r\n", 7};
    speech.prepare = {resp({"SET", kKey, kValue}), 5};
    if (operation == "get") {
        speech.operation = {resp({"GET", kKey}), 6 + kValue.size() + 2};
    } else if (operation == "set") {
        speech.operation = speech.prepare;
    } else {
        // A large number, so that its length stays the same.
        speech.prepare = {resp({"SET", kNumber, "1000000000"}), 5};
        speech.operation = {resp({"INCRBY", kNumber, "1"}), 13};
    }
    return speech;
}

/// The echo server would answer a greeting as a request, so there is none.
Speech speak_echo(const std::string& operation) {
    Speech speech = speak_store(operation, Dialect::current);
    speech.greeting = {};
    speech.prepare = {};
    return speech;
}

struct Server {
    std::string name;
    std::function<Speech(const std::string& operation)> speak;
    std::unique_ptr<Program> program;
    std::uint16_t port = 0;
};

/// Reads the port from the end of the first line that contains `word`.
std::optional<Server> start(const std::string& name, std::vector<std::string> command,
                            const std::string& word,
                            std::function<Speech(const std::string&)> speak) {
    // Redis hides the environment variable by which a Program finds its descendants, so it must end
    // with this process.
    command.insert(command.begin(),
                   {"/usr/bin/setpriv", "--pdeathsig", "KILL", "/usr/bin/taskset", "-c", "0"});
    Server server{name, std::move(speak),
                  std::make_unique<Program>(testing::ProgramSpec{command, {}, {}}), 0};
    if (!server.program->prints(word)) {
        std::printf("  %s is left out: it does not start\n%s", name.c_str(),
                    server.program->output().c_str());
        return std::nullopt;
    }
    for (const std::string& line : testing::lines_of(server.program->output())) {
        if (line.find(word) != std::string::npos) {
            const std::size_t digits = line.find_last_not_of("0123456789");
            server.port = static_cast<std::uint16_t>(
                std::atoi(line.substr(digits == line.npos ? 0 : digits + 1).c_str()));
            break;
        }
    }
    return server;
}

struct Options {
    std::string regroup;
    std::string echo_server;
    std::string store_program;
    std::vector<std::string> interpreters;
    bool quick = false;
};

std::vector<Server> start_servers(const Options& options) {
    std::vector<Server> servers;
    const auto add = [&](std::optional<Server> server) {
        if (server) {
            servers.push_back(*std::move(server));
        }
    };
    add(start("regroup", {options.regroup, "serve", "--listen", "127.0.0.1:0", "--serve-torchrun"},
              "listening on", [](const std::string& operation) {
                  return speak_store(operation, Dialect::current);
              }));
    for (const std::string& interpreter : options.interpreters) {
        const bool is_old = interpreter.starts_with("1.13=");
        // The link is not resolved: Python finds its virtual environment by it.
        const std::string path =
            std::filesystem::absolute(interpreter.substr(interpreter.find('=') + 1));
        const Dialect dialect = is_old ? Dialect::v1_13 : Dialect::current;
        if (!std::filesystem::exists(path)) {
            std::printf("  PyTorch at %s is left out: it is not there\n", path.c_str());
            continue;
        }
        add(start(
            "PyTorch " + interpreter.substr(0, interpreter.find('=')),
            {path, options.store_program, "--serve", "for good"}, "port ",
            [dialect](const std::string& operation) { return speak_store(operation, dialect); }));
    }
    if (std::filesystem::exists("/usr/bin/redis-server")) {
        const std::string port = std::to_string(testing::unused_port());
        auto redis = start(
            "Redis",
            {"/usr/bin/redis-server", "--port", port, "--bind", "127.0.0.1", "--protected-mode",
             "no", "--save", "", "--appendonly", "no", "--maxclients", "17000"},
            "Ready to accept connections", speak_redis);
        if (redis) {
            redis->port = static_cast<std::uint16_t>(std::atoi(port.c_str()));
        }
        add(std::move(redis));
    } else {
        std::puts("  Redis is left out: there is no /usr/bin/redis-server");
    }
    return servers;
}

/// Starts an echo server with the same number of bytes as the operation.
std::optional<Server> start_echo(const Options& options, const std::string& operation) {
    const Exchange bytes = speak_echo(operation).operation;
    return start("bare echo",
                 {options.echo_server, std::to_string(bytes.request.size()),
                  std::to_string(bytes.reply_bytes)},
                 "port ", speak_echo);
}

struct Figures {
    std::vector<double> rate;
    std::vector<double> p99;
    std::vector<double> cpu;
};

using Case = std::pair<std::string, std::size_t>;  // Operation, clients.

/// Connects. Returns null, after a message, if the server is left out.
std::unique_ptr<StoreLoad> connect(const Server& server, const Case& what) {
    auto load = std::make_unique<StoreLoad>(StoreLoad::Target{server.port, server.program->pid()},
                                            server.speak(what.first), what.second);
    if (!load->is_ready()) {
        // PyTorch 2.14 makes a DNS query for each client before it serves the next one.
        std::printf("  %s is left out at %zu clients: it does not answer all greetings\n",
                    server.name.c_str(), what.second);
        return nullptr;
    }
    return load;
}

/// Measures all servers in turn in each round, so that other load affects all of them. If there are
/// too many clients for that, measures one server after the other.
void measure(const Options& options, const std::vector<Server*>& servers, const Case& what,
             std::map<std::string, Figures>& figures) {
    const int rounds = options.quick ? 1 : 4;
    const milliseconds time(options.quick ? 100 : 400);
    const std::size_t in_flight = what.second > 256 ? kInFlightMax : what.second;
    const auto run_one = [&](const Server& server, StoreLoad& load) {
        const LoadResult result = load.run(in_flight, time);
        if (load.is_ready()) {
            Figures& all = figures[server.name];
            all.rate.push_back(result.operations_per_second);
            all.p99.push_back(result.p99_us);
            all.cpu.push_back(result.server_us_per_operation);
        }
        return load.is_ready();
    };
    if (what.second * servers.size() > kClientsTogetherMax) {
        for (const Server* server : servers) {
            const auto load = connect(*server, what);
            for (int i = 0; i < rounds && load && run_one(*server, *load); ++i) {
            }
        }
        return;
    }
    std::vector<std::pair<const Server*, std::unique_ptr<StoreLoad>>> loads;
    for (const Server* server : servers) {
        if (auto load = connect(*server, what)) {
            loads.emplace_back(server, std::move(load));
        }
    }
    for (int i = 0; i < rounds; ++i) {
        std::erase_if(loads, [&](auto& entry) { return !run_one(*entry.first, *entry.second); });
    }
}

/// Adds a row for each server, and keeps the worst ratio for each.
void report(const std::vector<Server*>& servers, const Case& what,
            std::map<std::string, Figures>& figures, Table& table,
            std::map<std::string, double>& worst_ratio) {
    if (figures["regroup"].cpu.empty()) {
        return;
    }
    const double ours = summarize(figures["regroup"].cpu).min;
    for (const Server* server : servers) {
        const Figures& all = figures[server->name];
        if (all.cpu.empty()) {
            continue;
        }
        const double cpu = summarize(all.cpu).min;
        table.add({what.first + ", " + std::to_string(what.second) + " clients, " + server->name,
                   fixed(summarize(all.rate).median, 0), fixed(summarize(all.p99).median, 0),
                   fixed(cpu, 2), fixed(cpu / ours, 2)});
        const double ratio = server->name == "bare echo" ? ours / cpu : cpu / ours;
        double& worst = worst_ratio.try_emplace(server->name, ratio).first->second;
        worst = server->name == "bare echo" ? std::max(worst, ratio) : std::min(worst, ratio);
    }
}

int run(const Options& options) {
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    const std::size_t descriptors = raise_descriptor_limit();
    print_head("store: one operation, with a value of 128 bytes");
    std::vector<Server> servers = start_servers(options);
    if (servers.empty() || servers.front().name != "regroup") {
        return 1;
    }
    cpu_set_t second;
    CPU_ZERO(&second);
    CPU_SET(1, &second);
    ::sched_setaffinity(0, sizeof second, &second);

    std::vector<Case> cases;
    for (const char* operation : {"get", "set", "add"}) {
        for (const std::size_t clients : {1U, 16U, 256U}) {
            cases.emplace_back(operation, clients);
        }
    }
    for (const std::size_t clients : {50U, 1000U, 8000U, 16000U}) {
        if (clients + 100 < descriptors && (!options.quick || clients <= 1000)) {
            cases.emplace_back("get", clients);
        }
    }
    Table table({"", "ops/s", "p99 us", "server CPU us", "/ regroup"});
    std::map<std::string, double> worst_ratio;
    for (const Case& what : cases) {
        std::optional<Server> echo = start_echo(options, what.first);
        std::vector<Server*> all;
        for (Server& server : servers) {
            all.push_back(&server);
            if (server.name == "regroup" && echo) {
                all.push_back(&*echo);
            }
        }
        std::map<std::string, Figures> figures;
        measure(options, all, what, figures);
        report(all, what, figures, table, worst_ratio);
    }
    for (const Server& server : servers) {
        server.program->signal(SIGKILL);
    }
    table.print();
    std::puts("");
    for (const auto& [name, ratio] : worst_ratio) {
        if (name == "bare echo") {
            print_verdict("server CPU, regroup / bare echo, at worst", ratio, Aim::at_most, 1.10);
        } else if (name != "regroup") {
            print_verdict("server CPU, " + name + " / regroup, at worst", ratio, Aim::at_least,
                          1.0);
        }
    }
    return 0;
}

}  // namespace
}  // namespace regroup::bench

int main(int argc, char** argv) {
    regroup::bench::Options options;
    std::vector<std::string> words(argv + 1, argv + argc);
    if (std::erase(words, "--quick") > 0) {
        options.quick = true;
    }
    if (words.size() < 3) {
        std::fputs(
            "usage: store_bench REGROUP ECHO_SERVER STORE_PROGRAM [--quick] "
            "[RELEASE=PYTHON...]\n",
            stderr);
        return 2;
    }
    // Programs start in their own folders.
    options.regroup = std::filesystem::absolute(words[0]);
    options.echo_server = std::filesystem::absolute(words[1]);
    options.store_program = std::filesystem::absolute(words[2]);
    options.interpreters.assign(words.begin() + 3, words.end());
    return regroup::bench::run(options);
}
