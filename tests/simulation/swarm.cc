// SPDX-License-Identifier: Apache-2.0
//
// swarm --seed S --count N --hours H [--progress SECONDS] [--transcript]
//
// Runs N seeds from S on, each for H simulated hours of faults and a calm in which the job must
// recover. At the first seed that violates an invariant, prints its trace and exits with 1.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/simulation/simulation.h"

namespace {

using regroup::simulation::Options;
using regroup::simulation::RunReport;

constexpr std::size_t kStoryLines = 300;

struct Arguments {
    std::uint64_t seed = 1;
    std::uint64_t count = 1;
    double hours = 1;
    double progress = 0;
    bool transcript = false;
};

int usage() {
    std::fprintf(
        stderr,
        "usage: swarm [--seed S] [--count N] [--hours H] [--progress P] [--transcript]\n"
        "  --seed S      the first seed (default 1); a commit hash's first digits do well\n"
        "  --count N     how many seeds (default 1)\n"
        "  --hours H     simulated hours of faults for each (default 1)\n"
        "  --progress P  say how far it has come every P seconds (default 0: never)\n"
        "  --transcript  print everything that happened\n");
    return 2;
}

bool parse(int count, char** values, Arguments& arguments) {
    for (int i = 1; i < count; ++i) {
        const std::string flag = values[i];
        if (flag == "--transcript") {
            arguments.transcript = true;
            continue;
        }
        if (++i == count) {
            return false;
        }
        char* end = nullptr;
        if (flag == "--seed") {
            arguments.seed = std::strtoull(values[i], &end, 0);
        } else if (flag == "--count") {
            arguments.count = std::strtoull(values[i], &end, 0);
        } else if (flag == "--progress") {
            arguments.progress = std::strtod(values[i], &end);
        } else if (flag == "--hours") {
            arguments.hours = std::strtod(values[i], &end);
        }
        if (end == nullptr || end == values[i] || *end != '\0') {
            return false;
        }
    }
    return arguments.hours > 0 && arguments.progress >= 0;
}

void print_story(const RunReport& report, std::size_t lines_max) {
    const std::size_t skipped =
        report.trace.size() > lines_max ? report.trace.size() - lines_max : 0;
    for (std::size_t i = skipped; i < report.trace.size(); ++i) {
        std::printf("%s\n", report.trace[i].c_str());
    }
}

void print_failure(const Options& options, double hours, const RunReport& report) {
    print_story(report, kStoryLines);
    std::printf(
        "\nseed %llu violates an invariant:\n  %s\nreplay: swarm --seed %llu --hours %g "
        "--transcript\n",
        static_cast<unsigned long long>(options.seed), report.violation->c_str(),
        static_cast<unsigned long long>(options.seed), hours);
}

}  // namespace

int main(int count, char** values) {
    Arguments arguments;
    if (!parse(count, values, arguments)) {
        return usage();
    }
    RunReport total;
    const auto began = std::chrono::steady_clock::now();
    auto said = began;
    for (std::uint64_t i = 0; i < arguments.count; ++i) {
        Options options;
        options.seed = arguments.seed + i;
        options.safety = std::chrono::duration_cast<regroup::Duration>(
            std::chrono::duration<double>(arguments.hours * 3600));
        options.trace_lines = arguments.transcript ? 10'000'000 : 0;
        const RunReport report = run_seed(options);
        if (arguments.transcript) {
            print_story(report, report.trace.size());
        }
        if (report.violation) {
            print_failure(options, arguments.hours, report);
            return 1;
        }
        total.steps += report.steps;
        total.rounds += report.rounds;
        total.jobs += report.jobs;
        total.faults += report.faults;
        total.hash = total.hash * 31 + report.hash;
        const auto now = std::chrono::steady_clock::now();
        if (arguments.progress > 0 &&
            now - said >= std::chrono::duration<double>(arguments.progress)) {
            said = now;
            const std::chrono::duration<double> so_far = now - began;
            const unsigned long long done = i + 1;
            std::printf("seed %llu: %llu of %llu seeds hold, %.1f a second\n",
                        static_cast<unsigned long long>(options.seed), done,
                        static_cast<unsigned long long>(arguments.count),
                        static_cast<double>(done) / so_far.count());
            std::fflush(stdout);
        }
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    std::printf(
        "%llu seeds from %llu, %g simulated hours each: all invariants hold\n"
        "%llu jobs, %llu rounds, %llu faults, %.1f million steps in %.1f s; hash %016llx\n",
        static_cast<unsigned long long>(arguments.count),
        static_cast<unsigned long long>(arguments.seed), arguments.hours,
        static_cast<unsigned long long>(total.jobs), static_cast<unsigned long long>(total.rounds),
        static_cast<unsigned long long>(total.faults), static_cast<double>(total.steps) * 1e-6,
        took.count(), static_cast<unsigned long long>(total.hash));
    return 0;
}
