// SPDX-License-Identifier: Apache-2.0
// all_reduce of the CPU group: in memory from allocate, in the caller's memory, and over TCP.
// Compared with gloo, Open MPI, and the memory bandwidth of the machine. Also in a group of two
// nodes with four ranks each, simulated on this machine: first in the nodes, and as a flat ring.
//
//     all_reduce_bench PEER_SCRIPT [--quick] [NAME=PYTHON...]
//
// With REGROUP_GROUP_ENCRYPTION=1 the ranks encrypt what they send over TCP.
#include <regroup/regroup.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "tests/bench/peers.h"
#include "tests/bench/report.h"
#include "tests/bench/timed_run.h"
#include "tests/support/program.h"
#include "worker_sdk/src/cpu/cpu_process_group.h"
#include "worker_sdk/src/cpu/reduce.h"
#include "worker_sdk/src/group/owned_group.h"

namespace regroup {
namespace {

using Clock = std::chrono::steady_clock;
using Times = std::vector<double>;  // Microseconds.

const std::string kMpi = "Open MPI";
const std::string kMpiTcp = "Open MPI, TCP";

struct Size {
    std::size_t bytes;
    int rounds;
};

std::vector<Size> sizes(bool quick) {
    if (quick) {
        return {{1024, 5}, {std::size_t{1} << 20U, 2}};
    }
    return {{1024, 2000},
            {std::size_t{64} << 10U, 1000},
            {std::size_t{1} << 20U, 200},
            {std::size_t{8} << 20U, 40},
            {std::size_t{32} << 20U, 12},
            {std::size_t{128} << 20U, 5}};
}

/// Summary of times by name and size.
using Results = std::map<std::pair<std::string, std::size_t>, bench::Summary>;

double microseconds_of(const std::function<void()>& action) {
    const auto start = Clock::now();
    action();
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

/// The times of one collective on one buffer, which is rewritten before each call.
Times measure(ProcessGroup& group, std::span<float> values, int rounds) {
    Times times;
    for (int round = 0; round < rounds + 2; ++round) {
        std::fill(values.begin(), values.end(), 1.0F);
        group.barrier().wait();
        const double time =
            microseconds_of([&] { group.all_reduce(values, ReduceOp::sum).wait(); });
        if (round >= 2) {
            times.push_back(time);
        }
        if (values.back() != static_cast<float>(group.world_size())) {
            throw Error(Errc::system, "the sum is wrong");
        }
    }
    return times;
}

/// The times of `x[i] += y[i]` on buffers of this size, on all ranks at the same time.
Times measure_add(ProcessGroup& group, std::size_t bytes, int rounds) {
    std::vector<float> x(bytes / sizeof(float), 1.0F);
    const std::vector<float> y(x.size(), 2.0F);
    Times times;
    for (int round = 0; round < rounds; ++round) {
        group.barrier().wait();
        times.push_back(microseconds_of(
            [&] { cpu::reduce(ReduceOp::sum, DType::float32, x.data(), y.data(), x.size()); }));
    }
    return times;
}

struct World {
    std::uint32_t nodes;
    std::uint32_t node_ranks;

    [[nodiscard]] std::uint32_t size() const { return nodes * node_ranks; }
};

/// The times of `group`, and the bytes that this rank sends for each all_reduce.
std::pair<Times, Times> measure_with_bytes(ProcessGroup& group, std::span<float> values,
                                           int rounds) {
    const auto* const counted =
        dynamic_cast<const cpu::CpuProcessGroup*>(&OwnedGroup::within(group));
    const std::uint64_t before = counted->collective_bytes_sent();
    Times times = measure(group, values, rounds);
    const std::uint64_t sent = counted->collective_bytes_sent() - before;
    Times bytes{static_cast<double>(sent) / (rounds + 2)};
    return {std::move(times), std::move(bytes)};
}

/// One rank: measures everything over both transports; rank 0 writes lines "NAME BYTES TIME..." .
void run_rank(std::uint32_t rank, World world, std::uint16_t port, bool quick, std::FILE* out) {
    Context context;
    context.rank = rank;
    context.world_size = world.size();
    context.local_rank = rank % world.node_ranks;
    context.local_world_size = world.node_ranks;
    context.group_rank = rank / world.node_ranks;
    context.group_world_size = world.nodes;
    context.master_addr = "127.0.0.1";
    context.master_port = port;
    const auto shared = ProcessGroup::create("cpu", context, {.name = "shared"});
    context.cpu_transport = "tcp";
    if (std::getenv("REGROUP_GROUP_ENCRYPTION") != nullptr) {
        context.group_secret = "the secret of the benchmark's ranks";
        context.group_encryption = true;
    }
    const auto tcp = ProcessGroup::create("cpu", context, {.name = "tcp"});
    const auto tell = [&](const std::string& name, std::size_t bytes, const Times& times) {
        if (out == nullptr) {
            return;
        }
        std::fprintf(out, "%s %zu", name.c_str(), bytes);
        for (const double time : times) {
            std::fprintf(out, " %.3f", time);
        }
        std::fprintf(out, "\n");
    };
    for (const Size& size : sizes(quick)) {
        const Buffer buffer = shared->allocate(size.bytes);
        const std::span<float> registered(static_cast<float*>(buffer.data),
                                          size.bytes / sizeof(float));
        std::vector<float> own(registered.size());
        tell("registered", size.bytes, measure(*shared, registered, size.rounds));
        const auto [times, sent] = measure_with_bytes(*shared, own, size.rounds);
        tell("private", size.bytes, times);
        tell("private-bytes", size.bytes, sent);
        const auto [tcp_times, tcp_sent] = measure_with_bytes(*tcp, own, size.rounds);
        tell("tcp", size.bytes, tcp_times);
        tell("tcp-bytes", size.bytes, tcp_sent);
        tell("add", size.bytes, measure_add(*shared, size.bytes, size.rounds));
    }
}

void collect(std::istream& lines, Results& results) {
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        std::string name;
        std::size_t bytes = 0;
        words >> name >> bytes;
        Times times;
        for (double time = 0; words >> time;) {
            times.push_back(time);
        }
        if (!times.empty()) {
            results[{name, bytes}] = bench::summarize(times);
        }
    }
}

/// Rank 0's view of a world of processes.
bool run_world(World world, bool quick, Results& results) {
    const std::uint16_t port = testing::unused_port();
    std::FILE* const file = std::tmpfile();
    std::vector<pid_t> pids;
    for (std::uint32_t rank = 0; rank < world.size(); ++rank) {
        std::fflush(nullptr);
        pids.push_back(::fork());
        if (pids.back() == 0) {
            int status = 0;
            try {
                run_rank(rank, world, port, quick, rank == 0 ? file : nullptr);
            } catch (const std::exception& error) {
                std::fprintf(stderr, "rank %u: %s\n", rank, error.what());
                status = 1;
            }
            std::fflush(file);
            ::_exit(status);
        }
    }
    bool good = true;
    for (const pid_t pid : pids) {
        int status = 0;
        ::waitpid(pid, &status, 0);
        good = good && status == 0;
    }
    good = std::fseek(file, 0, SEEK_SET) == 0 && good;
    std::string text;
    for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) {
        text += static_cast<char>(c);
    }
    std::fclose(file);
    std::istringstream lines(text);
    collect(lines, results);
    return good;
}

/// Runs a peer. `command` prints its times for the given sizes.
void run_peer(const std::string& name, std::vector<std::string> command, bool quick,
              Results& results) {
    for (const Size& size : sizes(quick)) {
        command.push_back(std::to_string(size.bytes) + ":" + std::to_string(size.rounds));
    }
    testing::Program program({command, {}, ""});
    if (program.wait(std::chrono::seconds(240)) != 0) {
        std::printf("  %s does not run here, and is left out\n%s", name.c_str(),
                    program.output().c_str());
        return;
    }
    std::istringstream lines(program.output());
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        std::size_t bytes = 0;
        bench::Summary summary;
        if (words >> bytes >> summary.median >> summary.min) {
            results[{name, bytes}] = summary;
        }
    }
}

std::string size_text(std::size_t bytes) {
    return bytes < (std::size_t{1} << 20U) ? std::to_string(bytes >> 10U) + " KB"
                                           : std::to_string(bytes >> 20U) + " MB";
}

/// The least ratio of a peer's time to regroup's, in a range of sizes.
struct Goal {
    const char* ours;
    const char* what;
    std::size_t bytes_min;
    std::size_t bytes_max;
    double aim;
};

std::vector<Goal> goals(const std::string& peer) {
    constexpr std::size_t kAny = std::numeric_limits<std::size_t>::max();
    if (peer == kMpi) {
        return {{"registered", "registered memory, 64 KB to 32 MB", std::size_t{64} << 10U,
                 std::size_t{32} << 20U, 4},
                {"private", "private memory, at any size", 0, kAny, 1.2}};
    }
    if (peer == kMpiTcp) {
        return {{"tcp", "over TCP, at any size", 0, kAny, 1}};
    }
    return {{"registered", "registered memory, at any size", 0, kAny, 10},
            {"tcp", "over TCP, at any size", 0, kAny, 1.3}};
}

/// Prints the ratio of the peer's time to regroup's, and whether it meets the aim.
void print_ratios(const std::string& peer, bool quick, const Results& results) {
    bench::Table table({peer + " / ours, medians", "registered", "private", "tcp"});
    const auto ratio = [&](const char* ours, std::size_t bytes) {
        return results.at({peer, bytes}).median / results.at({ours, bytes}).median;
    };
    for (const Size& size : sizes(quick)) {
        if (!results.contains({peer, size.bytes})) {
            return;
        }
        table.add({size_text(size.bytes), bench::fixed(ratio("registered", size.bytes), 1),
                   bench::fixed(ratio("private", size.bytes), 1),
                   bench::fixed(ratio("tcp", size.bytes), 1)});
    }
    std::printf("\n");
    table.print();
    for (const Goal& goal : goals(peer)) {
        double least = std::numeric_limits<double>::max();
        for (const Size& size : sizes(quick)) {
            if (size.bytes >= goal.bytes_min && size.bytes <= goal.bytes_max) {
                least = std::min(least, ratio(goal.ours, size.bytes));
            }
        }
        bench::print_verdict(goal.what, least, bench::Aim::at_least, goal.aim);
    }
}

/// The memory traffic of the sum in registered memory, as a share of that of N simultaneous
/// additions. The sum reads and writes at least N S bytes each. N additions read 2 N S and write N
/// S.
double share_of_add(const Results& results, std::size_t bytes) {
    return (2 / results.at({"registered", bytes}).median) / (3 / results.at({"add", bytes}).median);
}

void print_world(std::uint32_t world_size, bool quick, const std::vector<std::string>& names,
                 const Results& results) {
    std::vector<std::string> header = {std::to_string(world_size) + " ranks; us, median (least)"};
    for (const std::string& name : names) {
        header.push_back(name);
    }
    header.insert(header.end(), {"of add's traffic", "bytes on the wire"});
    bench::Table table(header);
    for (const Size& size : sizes(quick)) {
        std::vector<std::string> row = {size_text(size.bytes)};
        const auto found = [&](const std::string& name) -> const bench::Summary* {
            const auto place = results.find({name, size.bytes});
            return place == results.end() ? nullptr : &place->second;
        };
        for (const std::string& name : names) {
            const bench::Summary* const summary = found(name);
            row.push_back(summary == nullptr ? "-"
                                             : bench::fixed(summary->median, 1) + " (" +
                                                   bench::fixed(summary->min, 1) + ")");
        }
        const double n = world_size;
        row.push_back(bench::fixed(100 * share_of_add(results, size.bytes), 0) + " %");
        row.push_back(bench::fixed(results.at({"tcp-bytes", size.bytes}).median /
                                       (2 * (n - 1) / n * static_cast<double>(size.bytes)),
                                   3) +
                      " x 2(N-1)/N");
        table.add(row);
    }
    table.print();
    if (world_size == 2) {  // Even a small machine has two cores.
        double least = 1e9;
        for (const Size& size : sizes(quick)) {
            if (size.bytes >= std::size_t{1} << 20U) {
                least = std::min(least, share_of_add(results, size.bytes));
            }
        }
        bench::print_verdict("share of add's traffic, 1 MB and more, in %", 100 * least,
                             bench::Aim::at_least, 75);
    }
    for (const std::string& name : names) {
        if (name.starts_with("gloo") || name.starts_with(kMpi)) {
            print_ratios(name, quick, results);
        }
    }
    std::printf("\n");
}

/// Several nodes: the ranks of each combine first, or all form one ring.
void print_nodes(World world, bool quick, const Results& results) {
    bench::Table table({std::to_string(world.nodes) + " nodes x " +
                            std::to_string(world.node_ranks) + " ranks; us, median (least)",
                        "nodes first", "registered", "flat ring", "flat / nodes first",
                        "bytes sent by rank 0", "flat ring"});
    double least = std::numeric_limits<double>::max();
    for (const Size& size : sizes(quick)) {
        const auto text = [&](const char* name) {
            const bench::Summary& summary = results.at({name, size.bytes});
            return bench::fixed(summary.median, 1) + " (" + bench::fixed(summary.min, 1) + ")";
        };
        const auto share = [&](const char* name) {
            return bench::fixed(
                       results.at({name, size.bytes}).median / static_cast<double>(size.bytes), 2) +
                   " S";
        };
        const double ratio =
            results.at({"tcp", size.bytes}).median / results.at({"private", size.bytes}).median;
        least = std::min(least, ratio);
        table.add({size_text(size.bytes), text("private"), text("registered"), text("tcp"),
                   bench::fixed(ratio, 1), share("private-bytes"), share("tcp-bytes")});
    }
    table.print();
    bench::print_verdict("flat ring / nodes first, at any size", least, bench::Aim::at_least, 1);
    std::printf("\n");
}

int run(int argc, char** argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: all_reduce_bench PEER_SCRIPT [--quick] [NAME=PYTHON...]\n");
        return 2;
    }
    bool quick = false;
    std::vector<std::pair<std::string, std::string>> peers;
    for (int i = 2; i < argc; ++i) {
        const std::string word = argv[i];
        const std::size_t equals = word.find('=');
        if (word == "--quick") {
            quick = true;
        } else if (equals != std::string::npos) {
            peers.emplace_back("gloo, PyTorch " + word.substr(0, equals), word.substr(equals + 1));
        }
    }
    bench::print_head("all_reduce: float32 sums among processes of one machine");
    const testing::TemporaryDirectory folder;
    const auto mpi = bench::build_mpi_program(
        std::filesystem::absolute(argv[1]).replace_filename("all_reduce_mpi.c"), folder.path());
    for (const std::uint32_t world_size : {2U, 4U}) {
        Results results;
        if (!run_world({1, world_size}, quick, results)) {
            return 1;
        }
        std::vector<std::string> names = {"registered", "private", "tcp"};
        for (const auto& [name, python] : peers) {
            const auto path = bench::find_program(python);
            if (path) {
                run_peer(name,
                         {*path, std::filesystem::absolute(argv[1]).string(),
                          std::to_string(world_size), std::to_string(testing::unused_port())},
                         quick, results);
                names.push_back(name);
            }
        }
        if (mpi) {
            std::vector<std::string> command = *mpi;
            command.insert(command.end() - 1, {"-n", std::to_string(world_size)});
            run_peer(kMpi, command, quick, results);
            command.insert(command.end() - 1, {"--mca", "btl", "self,tcp"});
            run_peer(kMpiTcp, command, quick, results);
            names.insert(names.end(), {kMpi, kMpiTcp});
        }
        print_world(world_size, quick, names, results);
    }
    const World nodes{2, 4};
    Results results;
    if (!run_world(nodes, quick, results)) {
        return 1;
    }
    print_nodes(nodes, quick, results);
    return 0;
}

}  // namespace
}  // namespace regroup

int main(int argc, char** argv) {
    return regroup::run(argc, argv);
}
