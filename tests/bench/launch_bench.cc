// SPDX-License-Identifier: Apache-2.0
//
// The wall time of a command that starts workers which end at once, compared with peers:
//
//     launch_bench REGROUP BARE_LOOP [ROUNDS [WORKERS...]]
//
// In each round every contestant runs once, so that other load affects all of them. Then the memory
// of the launcher and its wake-ups, while so many workers do nothing.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <sys/types.h>
#include <system_error>
#include <thread>
#include <vector>

#include "tests/bench/peers.h"
#include "tests/bench/report.h"
#include "tests/bench/timed_run.h"
#include "tests/support/program.h"

namespace regroup::bench {
namespace {

constexpr int kDefaultWorkers = 8;
/// torchrun starts as many interpreters.
constexpr int kTorchrunWorkersMax = 64;
constexpr const char* kWorker = "/bin/true";
constexpr int kDefaultRounds = 20;
constexpr std::chrono::seconds kIdle(10);
constexpr std::chrono::seconds kTrialLimit(20);

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

/// The number in the line of a file that begins with `name`.
double number_in(const std::string& file, const std::string& name) {
    for (const std::string& line : testing::lines_of(testing::read_file(file))) {
        if (line.starts_with(name)) {
            return std::strtod(line.c_str() + name.size(), nullptr);
        }
    }
    return 0;
}

/// The same in the status of all threads of a process together.
double sum_in_status(pid_t pid, const std::string& name) {
    double sum = 0;
    std::error_code error;
    for (const auto& task :
         std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task", error)) {
        sum += number_in(task.path().string() + "/status", name);
    }
    return sum;
}

/// The launcher while its workers sleep.
void print_idle(const std::string& regroup, int workers) {
    testing::Program job(
        {{regroup, "run", "--standalone", "--nproc-per-node=" + std::to_string(workers),
          "--log-dir", "/dev/null", "/bin/sleep", "1000"},
         {},
         ""});
    const auto count = static_cast<std::size_t>(workers);
    if (!testing::eventually([&] { return job.family().size() > count; })) {
        std::fprintf(stderr, "launch_bench: the workers do not start\n%s", job.output().c_str());
        std::exit(1);
    }
    std::this_thread::sleep_for(std::chrono::seconds(2));
    std::vector<pid_t> own;  // The launcher and its agent.
    for (const pid_t pid : job.family()) {
        std::error_code error;
        const auto program =
            std::filesystem::read_symlink("/proc/" + std::to_string(pid) + "/exe", error);
        if (!error && program == std::filesystem::canonical(regroup)) {
            own.push_back(pid);
        }
    }
    const auto sum = [&](const std::string& name) {
        double all = 0;
        for (const pid_t pid : own) {
            all += sum_in_status(pid, name);
        }
        return all;
    };
    const double before = sum("voluntary_ctxt_switches:");
    std::this_thread::sleep_for(kIdle);
    const double wakes =
        (sum("voluntary_ctxt_switches:") - before) / static_cast<double>(kIdle.count());
    double memory = 0;
    for (const pid_t pid : own) {
        memory += number_in("/proc/" + std::to_string(pid) + "/status", "VmRSS:") / 1024;
    }
    std::printf(
        "Launcher and agent of %d workers that sleep: %zu processes, %s MiB, %s wake-ups a "
        "second\n",
        workers, own.size(), fixed(memory, 1).c_str(), fixed(wakes, 1).c_str());
}

int run(const std::string& regroup, const std::string& bare_loop, int rounds, int workers) {
    const testing::TemporaryDirectory scratch;
    const std::string& folder = scratch.path();
    print_head("launch: " + std::to_string(workers) +
               " workers that exit immediately (/bin/true), the whole command");

    const std::vector<std::string> ours = {regroup, "run", "--standalone",
                                           "--nproc-per-node=" + std::to_string(workers)};
    const auto command = [&](const std::vector<std::string>& arguments) {
        return [&folder, arguments] { return run_timed(arguments, folder); };
    };
    const std::string loop = "bare loop, inside the benchmark";
    const std::string bare = "bare loop, as a command";
    const std::string quiet = "regroup run --log-dir /dev/null";
    std::vector<Contestant> contestants;
    contestants.push_back({loop, [workers] { return run_bare_loop(kWorker, workers); }, {}, {}});
    contestants.push_back({bare, command({bare_loop, kWorker, std::to_string(workers)}), {}, {}});
    contestants.push_back(
        {quiet, command(join(ours, {"--log-dir", "/dev/null", kWorker})), {}, {}});
    contestants.push_back(
        {"regroup run, with a file per rank", command(join(ours, {kWorker})), {}, {}});
    const std::string mpirun_name = "mpirun -n " + std::to_string(workers);
    if (const auto mpirun = find_mpirun()) {
        const auto words = join(*mpirun, {"-n", std::to_string(workers), kWorker});
        testing::Program trial({words, {}, ""});
        if (trial.wait(kTrialLimit) == 0) {
            contestants.push_back({mpirun_name, command(words), {}, {}});
        } else {
            std::printf("  %s does not end within %d s: it is left out\n", mpirun_name.c_str(),
                        static_cast<int>(kTrialLimit.count()));
        }
    }
    if (const auto torchrun =
            workers <= kTorchrunWorkersMax ? find_torchrun() : std::optional<Torchrun>()) {
        contestants.push_back({"torchrun, monitor interval 0.1 s",
                               [&folder, torchrun, workers] {
                                   return run_timed(
                                       torchrun_command(*torchrun, "1", workers, 0,
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
    if (const auto mpirun = wall_of(contestants, mpirun_name)) {
        print_verdict("mpirun / regroup", mpirun->median / reference, Aim::at_least, 5);
    }
    print_verdict("regroup / bare loop, as a command",
                  reference / wall_of(contestants, bare)->median, Aim::at_most, 1.5);
    print_verdict("regroup / bare loop, inside the benchmark",
                  reference / wall_of(contestants, loop)->median, Aim::at_most, 1.5);
    print_idle(regroup, workers);
    return 0;
}

}  // namespace
}  // namespace regroup::bench

int main(int argc, char** argv) {
    using namespace regroup::bench;
    if (argc < 3) {
        std::fprintf(stderr, "usage: launch_bench REGROUP BARE_LOOP [ROUNDS [WORKERS...]]\n");
        return 2;
    }
    const int rounds = argc > 3 ? std::max(1, std::atoi(argv[3])) : kDefaultRounds;
    std::vector<int> sizes;
    for (int i = 4; i < argc; ++i) {
        sizes.push_back(std::max(1, std::atoi(argv[i])));
    }
    if (sizes.empty()) {
        sizes = {kDefaultWorkers};
    }
    for (const int workers : sizes) {
        const int failed = run(std::filesystem::absolute(argv[1]),
                               std::filesystem::absolute(argv[2]), rounds, workers);
        if (failed != 0) {
            return failed;
        }
    }
    return 0;
}
