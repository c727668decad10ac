// SPDX-License-Identifier: Apache-2.0
//
// The wall time of a command that starts eight workers which end at once, compared with peers:
//
//     launch_bench REGROUP BARE_LOOP [ROUNDS]
//
// In each round every contestant runs once, so that other load affects all of them.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/bench/peers.h"
#include "tests/bench/report.h"
#include "tests/bench/timed_run.h"
#include "tests/support/program.h"

namespace regroup::bench {
namespace {

constexpr int kWorkers = 8;
constexpr const char* kWorker = "/bin/true";
constexpr int kDefaultRounds = 20;

struct Contestant {
    std::string name;
    std::function<TimedRun()> run;
    std::vector<double> wall_ms;
    std::vector<double> cpu_ms;
};

std::vector<std::string> join(std::vector<std::string> first,
                              const std::vector<std::string>& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
}

std::optional<Summary> wall_of(const std::vector<Contestant>& contestants,
                               const std::string& name) {
    for (const Contestant& contestant : contestants) {
        if (contestant.name == name) {
            return summarize(contestant.wall_ms);
        }
    }
    return std::nullopt;
}

int run(const std::string& regroup, const std::string& bare_loop, int rounds) {
    const testing::TemporaryDirectory scratch;
    const std::string& folder = scratch.path();
    print_head("launch: eight workers that exit immediately (/bin/true), the whole command");

    const std::vector<std::string> ours = {regroup, "run", "--standalone",
                                           "--nproc-per-node=" + std::to_string(kWorkers)};
    const auto command = [&](const std::vector<std::string>& arguments) {
        return [&folder, arguments] { return run_timed(arguments, folder); };
    };
    const std::string loop = "bare loop, inside the benchmark";
    const std::string bare = "bare loop, as a command";
    const std::string quiet = "regroup run --log-dir /dev/null";
    std::vector<Contestant> contestants;
    contestants.push_back({loop, [] { return run_bare_loop(kWorker, kWorkers); }, {}, {}});
    contestants.push_back({bare, command({bare_loop, kWorker, std::to_string(kWorkers)}), {}, {}});
    contestants.push_back(
        {quiet, command(join(ours, {"--log-dir", "/dev/null", kWorker})), {}, {}});
    contestants.push_back(
        {"regroup run, with a file per rank", command(join(ours, {kWorker})), {}, {}});
    if (const auto mpirun = find_mpirun()) {
        contestants.push_back({"mpirun -n 8",
                               command(join(*mpirun, {"-n", std::to_string(kWorkers), kWorker})),
                               {},
                               {}});
    }
    if (const auto torchrun = find_torchrun()) {
        contestants.push_back({"torchrun, monitor interval 0.1 s",
                               [&folder, torchrun] {
                                   return run_timed(
                                       torchrun_command(*torchrun, "1", kWorkers, 0,
                                                        testing::unused_port(),
                                                        folder + "/torchrun", {kWorker}),
                                       folder);
                               },
                               {},
                               {}});
    }

    for (int round = 0; round < rounds; ++round) {
        for (Contestant& contestant : contestants) {
            const TimedRun one = contestant.run();
            if (!one.success) {
                std::fprintf(stderr, "launch_bench: '%s' failed\n", contestant.name.c_str());
                return 1;
            }
            contestant.wall_ms.push_back(one.wall_ms);
            contestant.cpu_ms.push_back(one.cpu_ms);
        }
    }

    const double reference = wall_of(contestants, quiet)->median;
    Table table({"ms, " + std::to_string(rounds) + " rounds", "median", "min", "worst", "CPU",
                 "median / regroup"});
    for (const Contestant& contestant : contestants) {
        const Summary wall = summarize(contestant.wall_ms);
        table.add({contestant.name, fixed(wall.median, 2), fixed(wall.min, 2), fixed(wall.worst, 2),
                   fixed(summarize(contestant.cpu_ms).median, 2),
                   fixed(wall.median / reference, 2)});
    }
    table.print();
    std::printf("\n");
    if (const auto torchrun = wall_of(contestants, "torchrun, monitor interval 0.1 s")) {
        print_verdict("torchrun / regroup", torchrun->median / reference, Aim::at_least, 100);
    }
    if (const auto mpirun = wall_of(contestants, "mpirun -n 8")) {
        print_verdict("mpirun / regroup", mpirun->median / reference, Aim::at_least, 5);
    }
    print_verdict("regroup / bare loop, as a command",
                  reference / wall_of(contestants, bare)->median, Aim::at_most, 1.5);
    print_verdict("regroup / bare loop, inside the benchmark",
                  reference / wall_of(contestants, loop)->median, Aim::at_most, 1.5);
    return 0;
}

}  // namespace
}  // namespace regroup::bench

int main(int argc, char** argv) {
    using namespace regroup::bench;
    if (argc < 3) {
        std::fprintf(stderr, "usage: launch_bench REGROUP BARE_LOOP [ROUNDS]\n");
        return 2;
    }
    return run(std::filesystem::absolute(argv[1]), std::filesystem::absolute(argv[2]),
               argc > 3 ? std::max(1, std::atoi(argv[3])) : kDefaultRounds);
}
