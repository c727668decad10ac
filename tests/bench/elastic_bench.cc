// SPDX-License-Identifier: Apache-2.0
//
// The cost that ElasticLoop adds to a step, under the real launcher, with ranks on this machine:
//
//     elastic_bench REGROUP STEP_WORKER [--quick]
//
// A commit is a vote, which is a small all-reduce, and a report of progress to the agent.
#include <cstdio>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "tests/bench/report.h"
#include "tests/support/program.h"

namespace regroup::bench {
namespace {

constexpr auto kJobLimit = std::chrono::seconds(120);
constexpr double kStepNs = 10e6;  // The step that the share refers to.

/// In ns.
struct Costs {
    double barrier = 0;
    double vote = 0;
    double step = 0;
    double section = 0;

    [[nodiscard]] double reporting() const { return step - vote; }
};

std::optional<Costs> measure(const std::string& regroup, const std::string& worker, int ranks,
                             const std::string& steps) {
    const testing::TemporaryDirectory folder;
    const std::string file = folder.path() + "/results";
    testing::Program job(
        {{regroup, "run", "--standalone", "--nproc-per-node=" + std::to_string(ranks),
          "--log-dir=/dev/null", worker, file, steps},
         {},
         folder.path()});
    Costs costs;
    if (job.wait(kJobLimit) == 0) {
        std::istringstream line(testing::read_file(file));
        if (line >> costs.barrier >> costs.vote >> costs.step >> costs.section) {
            return costs;
        }
    }
    std::fprintf(stderr, "elastic_bench: a job failed; it printed:\n%s\n", job.output().c_str());
    return std::nullopt;
}

int run(const std::string& regroup, const std::string& worker, bool quick) {
    print_head("ElasticLoop: what a step costs that does nothing");
    Table table({"ns, medians", "barrier", "vote", "step", "reporting", "section"});
    for (const int ranks : {1, 2, 4}) {
        const auto costs = measure(regroup, worker, ranks, quick ? "1000" : "50000");
        if (!costs) {
            return 1;
        }
        table.add({std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks"),
                   fixed(costs->barrier, 0), fixed(costs->vote, 0), fixed(costs->step, 0),
                   fixed(costs->reporting(), 0), fixed(costs->section, 0)});
        print_verdict("reporting, ranks: " + std::to_string(ranks) + ", of a step of 10 ms, in %",
                      100 * costs->reporting() / kStepNs, Aim::at_most, 0.1);
    }
    std::printf("\n");
    table.print();
    return 0;
}

}  // namespace
}  // namespace regroup::bench

int main(int argc, char** argv) {
    if (argc < 3) {
        std::fprintf(stderr, "usage: elastic_bench REGROUP STEP_WORKER [--quick]\n");
        return 2;
    }
    return regroup::bench::run(argv[1], argv[2], argc > 3 && std::string(argv[3]) == "--quick");
}
