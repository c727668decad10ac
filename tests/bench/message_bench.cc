// SPDX-License-Identifier: Apache-2.0
// Half of the round trip of a message between two ranks of one node: through shared memory, over
// TCP, and with Open MPI.
//
//     message_bench MPI_SOURCE [--quick]
#include <regroup/regroup.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "tests/bench/peers.h"
#include "tests/bench/report.h"
#include "tests/support/program.h"

namespace regroup {
namespace {

using Clock = std::chrono::steady_clock;

const std::string kMpi = "Open MPI";

struct Size {
    std::size_t bytes;
    int rounds;
};

std::vector<Size> sizes(bool quick) {
    if (quick) {
        return {{1, 50}, {std::size_t{1} << 20U, 5}};
    }
    return {{1, 20000},
            {1024, 20000},
            {std::size_t{16} << 10U, 10000},
            {std::size_t{256} << 10U, 2000},
            {std::size_t{4} << 20U, 200},
            {std::size_t{64} << 20U, 20}};
}

/// Microseconds by name and size.
using Results = std::map<std::string, std::map<std::size_t, bench::Summary>>;

bench::Summary measure(ProcessGroup& group, const Size& size) {
    std::vector<std::uint8_t> values(size.bytes);
    const std::uint32_t other = 1 - group.rank();
    std::vector<double> times;
    for (int round = -2; round < size.rounds; ++round) {
        const auto start = Clock::now();
        for (std::uint32_t step = 0; step < 2; ++step) {
            if (step == group.rank()) {
                group.send(std::span<const std::uint8_t>(values), other).wait();
            } else {
                group.recv(std::span(values), other).wait();
            }
        }
        if (round >= 0) {
            times.push_back(
                std::chrono::duration<double, std::micro>(Clock::now() - start).count() / 2);
        }
    }
    return bench::summarize(std::move(times));
}

Results run_rank(std::uint32_t rank, std::uint16_t port, bool quick) {
    Context context;
    context.rank = rank;
    context.world_size = 2;
    context.local_rank = rank;
    context.local_world_size = 2;
    context.master_addr = "127.0.0.1";
    context.master_port = port;
    Results results;
    for (const auto& [name, transport] :
         std::map<std::string, std::string>{{"shared memory", "shm"}, {"TCP", "tcp"}}) {
        context.cpu_transport = transport;
        const auto group = ProcessGroup::create("cpu", context, {.name = transport});
        for (const Size& size : sizes(quick)) {
            results[name][size.bytes] = measure(*group, size);
        }
    }
    return results;
}

/// Rank 0 is this process, rank 1 a fork of it.
Results run_ours(bool quick) {
    const std::uint16_t port = testing::unused_port();
    std::fflush(nullptr);
    const pid_t other = ::fork();
    if (other == 0) {
        int status = 0;
        try {
            run_rank(1, port, quick);
        } catch (const std::exception& error) {
            std::fprintf(stderr, "rank 1: %s\n", error.what());
            status = 1;
        }
        ::_exit(status);
    }
    Results results = run_rank(0, port, quick);
    ::waitpid(other, nullptr, 0);
    return results;
}

void run_mpi(std::vector<std::string> command, bool quick, Results& results) {
    command.insert(command.end() - 1, {"-n", "2"});
    for (const Size& size : sizes(quick)) {
        command.push_back(std::to_string(size.bytes) + ":" + std::to_string(size.rounds));
    }
    testing::Program program({command, {}, ""});
    if (program.wait(std::chrono::seconds(240)) != 0) {
        std::printf("  Open MPI does not run here, and is left out\n%s", program.output().c_str());
        return;
    }
    std::istringstream lines(program.output());
    std::size_t bytes = 0;
    for (bench::Summary summary; lines >> bytes >> summary.median >> summary.min;) {
        results[kMpi][bytes] = summary;
    }
}

std::string size_text(std::size_t bytes) {
    if (bytes < 1024) {
        return std::to_string(bytes) + " B";
    }
    return bytes < (std::size_t{1} << 20U) ? std::to_string(bytes >> 10U) + " KB"
                                           : std::to_string(bytes >> 20U) + " MB";
}

void print(const Results& results, bool quick) {
    std::vector<std::string> header = {"us, median (least)"};
    for (const auto& [name, times] : results) {
        header.push_back(name);
    }
    bench::Table table(header);
    for (const Size& size : sizes(quick)) {
        std::vector<std::string> row = {size_text(size.bytes)};
        for (const auto& [name, times] : results) {
            const bench::Summary& summary = times.at(size.bytes);
            row.push_back(bench::fixed(summary.median, 2) + " (" + bench::fixed(summary.min, 2) +
                          ")");
        }
        table.add(row);
    }
    table.print();
}

int run(int argc, char** argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: message_bench MPI_SOURCE [--quick]\n");
        return 2;
    }
    const bool quick = argc > 2 && std::string(argv[2]) == "--quick";
    bench::print_head("messages: half of a round trip between two ranks of one node");
    Results results = run_ours(quick);
    const testing::TemporaryDirectory folder;
    if (const auto mpi =
            bench::build_mpi_program(std::filesystem::absolute(argv[1]), folder.path())) {
        run_mpi(*mpi, quick, results);
    }
    print(results, quick);
    return 0;
}

}  // namespace
}  // namespace regroup

int main(int argc, char** argv) {
    return regroup::run(argc, argv);
}
