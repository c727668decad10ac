// SPDX-License-Identifier: Apache-2.0
//
// The cost of DistributedDataParallel on two ranks of this machine, compared with PyTorch's over
// gloo:
//
//     ddp_bench REGROUP STEP_WORKER PERCEPTRON_WORKER TORCH_PROGRAM [--quick] [NAME=PYTHON...]
//
// - The synthetic model, 200 gradients of together 25 MB: the time and the processor time that
//   synchronisation adds to a step, by policy, beside an all-reduce of the same bytes at once.
// - The instructions of a gradient_ready that completes no bucket, if valgrind is there.
// - A perceptron, 784-512-512-10, batches of 64 on each rank, one thread each: samples per second.
//
// Contestants take turns. `regroup run` starts every job.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "tests/bench/report.h"
#include "tests/bench/timed_run.h"
#include "tests/support/program.h"

namespace regroup::bench {
namespace {

using Command = std::vector<std::string>;

constexpr auto kJobLimit = std::chrono::seconds(120);
constexpr int kRanks = 2;
constexpr int kBatch = 64;
constexpr int kHookCalls = 100000;

struct Programs {
    std::string regroup;
    std::string step_worker;
    std::string perceptron_worker;
    std::string torch_program;
    std::vector<std::pair<std::string, std::string>> pythons;  // by name
    bool quick = false;
};

struct Cost {
    double wall_ms = 0;
    double cpu_ms = 0;
};

/// All results of one name, over the turns.
struct Samples {
    std::vector<double> wall_ms;
    std::vector<double> cpu_ms;

    [[nodiscard]] Cost median() const {
        return {summarize(wall_ms).median, summarize(cpu_ms).median};
    }
};
using Results = std::map<std::string, Samples>;

/// Runs a job of two ranks, and adds the values of its result file. False if it failed.
bool run_job(const std::string& regroup, const Command& worker, const Command& arguments,
             Results& results) {
    const testing::TemporaryDirectory folder;
    const std::string file = folder.path() + "/results";
    Command command{regroup, "run", "--standalone", "--nproc-per-node=" + std::to_string(kRanks),
                    "--log-dir=/dev/null"};
    command.insert(command.end(), worker.begin(), worker.end());
    for (const std::string& argument : arguments) {
        command.push_back(argument == "RESULT" ? file : argument);
    }
    testing::Program job({command, {"OMP_NUM_THREADS=1", "MKL_NUM_THREADS=1"}, folder.path()});
    if (job.wait(kJobLimit) != 0) {
        std::fprintf(stderr, "ddp_bench: a job failed; it printed:\n%s\n", job.output().c_str());
        return false;
    }
    std::istringstream lines(testing::read_file(file));
    std::string name;
    Cost cost;
    while (lines >> name >> cost.wall_ms >> cost.cpu_ms) {
        results[name].wall_ms.push_back(cost.wall_ms);
        results[name].cpu_ms.push_back(cost.cpu_ms);
    }
    return true;
}

Command torch_worker(const Programs& programs, const std::string& python, const std::string& mode) {
    return {python, programs.torch_program, mode};
}

/// Leaves out contestants that cannot run, with a message.
std::vector<std::pair<std::string, std::string>> present_pythons(const Programs& programs) {
    std::vector<std::pair<std::string, std::string>> present;
    for (const auto& [name, python] : programs.pythons) {
        testing::Program question({{python, "-c", "import torch.distributed"}, {}, ""});
        if (std::filesystem::exists(python) && question.wait() == 0) {
            present.emplace_back(name, python);
        } else {
            std::printf("  PyTorch %s is left out: %s has none\n", name.c_str(), python.c_str());
        }
    }
    return present;
}

bool measure_steps(const Programs& programs) {
    print_head("ddp: what synchronising 200 gradients of 25 MB adds to a step, two ranks");
    const auto pythons = present_pythons(programs);
    const int turns = programs.quick ? 1 : 3;
    const std::string rounds = programs.quick ? "3" : "15";
    Results ours;
    std::map<std::string, Results> theirs;
    for (int turn = 0; turn < turns; ++turn) {
        if (!run_job(programs.regroup, {programs.step_worker}, {"step", "RESULT", rounds}, ours)) {
            return false;
        }
        for (const auto& [name, python] : pythons) {
            if (!run_job(programs.regroup, torch_worker(programs, python, "step"),
                         {"RESULT", rounds}, theirs[name])) {
                return false;
            }
        }
    }
    const Cost floor = ours.at("floor").median();
    Table table({"", "added ms", "/ floor", "added CPU ms", "/ floor"});
    const auto add = [&](const std::string& what, const Cost& cost) {
        table.add({what, fixed(cost.wall_ms, 2), fixed(cost.wall_ms / floor.wall_ms, 2),
                   fixed(cost.cpu_ms, 2), fixed(cost.cpu_ms / floor.cpu_ms, 2)});
    };
    add("floor: all_reduce of the same bytes", floor);
    add("floor: of half of them", ours.at("floor_half").median());
    const std::pair<const char*, const char*> policies[] = {
        {"buckets_25_MiB", "regroup, buckets of 25 MiB"},
        {"buckets_4_MiB", "regroup, buckets of 4 MiB"},
        {"buckets_1_MiB", "regroup, buckets of 1 MiB"},
        {"callers_memory", "regroup, gradients in the caller's memory"},
        {"wire_bfloat16", "regroup, bfloat16 on the wire"},
        {"wire_float16", "regroup, float16 on the wire"},
    };
    for (const auto& [name, what] : policies) {
        add(what, ours.at(name).median());
    }
    for (const auto& [name, results] : theirs) {
        add("PyTorch " + name + ", gloo: all_reduce", results.at("floor").median());
        add("PyTorch " + name + ", gloo: DistributedDataParallel", results.at("added").median());
    }
    table.print();
    std::printf("\n");
    const Cost best = ours.at("buckets_25_MiB").median();
    print_verdict("added CPU / floor, buckets of 25 MiB", best.cpu_ms / floor.cpu_ms, Aim::at_most,
                  1.5);
    for (const auto& [name, results] : theirs) {
        print_verdict("added ms, PyTorch " + name + " / regroup",
                      results.at("added").median().wall_ms / best.wall_ms, Aim::at_least, 8);
    }
    return true;
}

/// Counts the instructions of one function with callgrind.
void count_instructions(const Programs& programs) {
    const auto valgrind = find_program("valgrind");
    const auto strip = find_program("strip");
    if (!valgrind || !strip) {
        std::printf("  no valgrind here: the instructions of gradient_ready are not counted\n\n");
        return;
    }
    // Strips the debug information, which valgrind may not be able to read.
    const testing::TemporaryDirectory folder;
    const std::string copy = folder.path() + "/worker";
    testing::Program stripping({{*strip, "-g", "-o", copy, programs.step_worker}, {}, ""});
    testing::Program counting(
        {{*valgrind, "--tool=callgrind", "--callgrind-out-file=/dev/null",
          "--toggle-collect=*report_all_but_the_last*",
          stripping.wait() == 0 ? copy : programs.step_worker, "hook", std::to_string(kHookCalls)},
         {},
         ""});
    (void)counting.wait(kJobLimit);
    const std::string output = counting.output();
    const std::string label = "Collected : ";
    const auto at = output.find(label);
    if (at == std::string::npos) {
        std::printf("  valgrind counted nothing; it printed:\n%s\n", output.c_str());
        return;
    }
    const double count = std::strtod(output.c_str() + at + label.size(), nullptr);
    print_verdict("instructions of a gradient_ready that completes no bucket", count / kHookCalls,
                  Aim::at_most, 80);
    std::printf("\n");
}

bool measure_perceptron(const Programs& programs) {
    print_head("ddp: samples per second of a perceptron, 784-512-512-10, two ranks x 64, SGD");
    const auto pythons = present_pythons(programs);
    const int turns = programs.quick ? 1 : 3;
    const std::string steps = programs.quick ? "10" : "200";
    Results ours;
    std::map<std::string, Results> theirs;
    for (int turn = 0; turn < turns; ++turn) {
        if (!run_job(programs.regroup, {programs.perceptron_worker}, {"RESULT", steps}, ours)) {
            return false;
        }
        for (const auto& [name, python] : pythons) {
            if (!run_job(programs.regroup, torch_worker(programs, python, "perceptron"),
                         {"RESULT", steps}, theirs[name])) {
                return false;
            }
        }
    }
    Table table({"", "ms a step", "CPU ms", "samples/s"});
    const auto add = [&](const std::string& what, const Results& results) {
        const Cost cost = results.at("step").median();
        table.add({what, fixed(cost.wall_ms, 2), fixed(cost.cpu_ms, 2),
                   fixed(kRanks * kBatch / cost.wall_ms * 1e3, 0)});
        return cost.wall_ms;
    };
    const double mine = add("regroup, Eigen", ours);
    std::vector<std::pair<std::string, double>> ratios;
    for (const auto& [name, results] : theirs) {
        ratios.emplace_back(name, add("PyTorch " + name + ", gloo", results) / mine);
    }
    table.print();
    std::printf("\n");
    for (const auto& [name, ratio] : ratios) {
        print_verdict("samples per second, regroup / PyTorch " + name, ratio, Aim::at_least, 2);
    }
    return true;
}

}  // namespace
}  // namespace regroup::bench

int main(int argc, char** argv) {
    using namespace regroup::bench;
    if (argc < 5) {
        std::fprintf(stderr,
                     "usage: ddp_bench REGROUP STEP_WORKER PERCEPTRON_WORKER TORCH_PROGRAM "
                     "[--quick] [NAME=PYTHON...]\n");
        return 2;
    }
    Programs programs;
    programs.regroup = std::filesystem::absolute(argv[1]);
    programs.step_worker = std::filesystem::absolute(argv[2]);
    programs.perceptron_worker = std::filesystem::absolute(argv[3]);
    programs.torch_program = std::filesystem::absolute(argv[4]);
    for (int i = 5; i < argc; ++i) {
        const std::string argument = argv[i];
        const auto equals = argument.find('=');
        if (argument == "--quick") {
            programs.quick = true;
        } else if (equals != std::string::npos) {
            programs.pythons.emplace_back(argument.substr(0, equals), argument.substr(equals + 1));
        }
    }
    if (!measure_steps(programs)) {
        return 1;
    }
    count_instructions(programs);
    return !std::filesystem::exists(programs.perceptron_worker) || measure_perceptron(programs) ? 0
                                                                                                : 1;
}
