// SPDX-License-Identifier: Apache-2.0
//
// Time from the death of one worker (SIGKILL) until all workers of the next round run, compared
// with torchrun:
//
//     restart_bench REGROUP RESTART_WORKER [FAILURES [FAILURES_OF_TORCHRUN]]
//
// One job lives through all failures. The rank of the victim and the moment differ each time.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <signal.h>
#include <string>
#include <vector>

#include "tests/bench/peers.h"
#include "tests/bench/report.h"
#include "tests/bench/restart_gate.h"
#include "tests/support/program.h"

namespace regroup::bench {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int kDefaultFailures = 20;
constexpr int kDefaultPeerFailures = 8;
constexpr auto kRoundLimit = std::chrono::seconds(180);
constexpr auto kEndLimit = std::chrono::seconds(20);
constexpr double kAim = 50;
/// In ms: for two workers on one agent, for one on each of 16 agents, and for each further agent.
constexpr double kSmallestAim = 5;
constexpr double kLargestAim = 30;
constexpr double kAgentAim = 1.5;

struct Shape {
    int agents = 1;
    int workers = 1;  ///< Workers of each agent.

    [[nodiscard]] int world() const { return agents * workers; }
    /// The number of failures with torchrun, which takes seconds for each, and longer with more
    /// agents.
    [[nodiscard]] int peer_failures(int most) const {
        return agents > 4 ? std::min(most, 3) : most;
    }
    [[nodiscard]] std::string text() const {
        return (agents == 1 ? "1 agent" : std::to_string(agents) + " agents") + " x " +
               std::to_string(workers) + (workers == 1 ? " worker" : " workers");
    }
};

/// How long a round runs before the next failure: long enough to be stable, and not in phase with
/// any polling interval.
milliseconds pause_before(int failure) {
    constexpr int kFirst = 150;
    constexpr int kStep = 37;
    constexpr int kSpread = 100;
    return milliseconds(kFirst + failure * kStep % kSpread);
}

/// Starts the job by running `command` once for each agent, and kills one worker after another.
/// Returns the times in ms; nothing, after a message on stderr, if the job did not run again.
std::optional<std::vector<double>> measure(const Shape& shape, int failures,
                                           const std::vector<std::string>& command) {
    const testing::TemporaryDirectory scratch;
    const std::string socket = scratch.path() + "/gate";
    RestartGate gate(socket);
    std::vector<std::unique_ptr<testing::Program>> agents;
    const auto count = static_cast<std::size_t>(shape.world());
    auto since = steady_clock::now();
    for (int agent = 0; agent < shape.agents; ++agent) {
        agents.push_back(std::make_unique<testing::Program>(
            testing::ProgramSpec{command,
                                 {std::string(kGateVariable) + "=" + socket, "OMP_NUM_THREADS=1"},
                                 scratch.path()}));
    }
    std::vector<double> result;
    for (int failure = 0;; ++failure) {
        if (!gate.wait_for_round(count, since, steady_clock::now() + kRoundLimit)) {
            std::fprintf(
                stderr, "restart_bench: %zu of %zu workers run after failure %d; %s printed:\n%s\n",
                gate.count(), count, failure, command.front().c_str(),
                agents.front()->output().c_str());
            return std::nullopt;
        }
        if (failure > 0) {
            result.push_back(
                std::chrono::duration<double, std::milli>(gate.last_start() - since).count());
        }
        if (failure == failures) {
            break;
        }
        gate.watch_until(steady_clock::now() + pause_before(failure));
        const int victim = gate.pid_of(failure % shape.world());
        since = steady_clock::now();
        if (gate.count() != count || ::kill(victim, SIGKILL) != 0) {
            std::fprintf(stderr, "restart_bench: a round ended by itself\n");
            return std::nullopt;
        }
    }
    gate.open();
    for (const auto& agent : agents) {
        (void)agent->wait(kEndLimit);
    }
    return result;
}

std::vector<std::string> regroup_command(const std::string& regroup, const Shape& shape,
                                         int failures, const std::string& worker) {
    std::vector<std::string> command = {regroup, "run",
                                        "--nproc-per-node=" + std::to_string(shape.workers),
                                        "--max-restarts=" + std::to_string(failures),
                                        // Otherwise regroup would back off from the second restart
                                        // on, and peers do not.
                                        "--restart-delay=0"};
    if (shape.agents == 1) {
        command.emplace_back("--standalone");
    } else {
        command.push_back("--nnodes=" + std::to_string(shape.agents));
        command.emplace_back("--rdzv-backend=c10d");
        command.push_back("--rdzv-endpoint=127.0.0.1:" + std::to_string(testing::unused_port()));
    }
    command.push_back(worker);
    return command;
}

constexpr Shape kSmallest{1, 2};
constexpr Shape kPair{2, 1};
constexpr Shape kLargest{16, 1};
constexpr Shape kShapes[] = {kSmallest, {1, 8}, {2, 2}, kPair, {8, 1}, kLargest};

/// Prints the aims that do not depend on a peer. `medians`: in ms, by the text of their shape.
void print_own_aims(const std::map<std::string, double>& medians) {
    const double largest = medians.at(kLargest.text());
    print_verdict(kSmallest.text() + ", median ms", medians.at(kSmallest.text()), Aim::at_most,
                  kSmallestAim);
    print_verdict(kLargest.text() + ", median ms", largest, Aim::at_most, kLargestAim);
    print_verdict("ms for each more agent, from " + std::to_string(kPair.agents) + " to " +
                      std::to_string(kLargest.agents),
                  (largest - medians.at(kPair.text())) / (kLargest.agents - kPair.agents),
                  Aim::at_most, kAgentAim);
}

int run(const std::string& regroup, const std::string& worker, int failures, int peer_failures) {
    print_head("restart: one worker is killed, until all workers of the next round run");
    const auto torchrun = find_torchrun();
    const testing::TemporaryDirectory logs;
    Table table({"ms", "failures", "median", "min", "worst"});
    std::vector<std::pair<std::string, double>> ratios;
    std::map<std::string, double> medians;
    const auto add = [&](const std::string& name, const Summary& all) {
        table.add({name, std::to_string(all.count), fixed(all.median, 2), fixed(all.min, 2),
                   fixed(all.worst, 2)});
    };
    for (const Shape& shape : kShapes) {
        const auto ours =
            measure(shape, failures, regroup_command(regroup, shape, failures, worker));
        if (!ours) {
            return 1;
        }
        add(shape.text() + ", regroup", summarize(*ours));
        medians[shape.text()] = summarize(*ours).median;
        if (!torchrun) {
            continue;
        }
        const int count = shape.peer_failures(peer_failures);
        const auto theirs =
            measure(shape, count,
                    torchrun_command(*torchrun, std::to_string(shape.agents), shape.workers, count,
                                     testing::unused_port(), logs.path(), {worker}));
        if (theirs) {
            add(shape.text() + ", torchrun, monitor interval 0.1 s", summarize(*theirs));
            ratios.emplace_back(shape.text(), summarize(*theirs).median / medians.at(shape.text()));
        }
    }
    table.print();
    std::printf("\n");
    for (const auto& [name, ratio] : ratios) {
        print_verdict("torchrun / regroup, " + name, ratio, Aim::at_least, kAim);
    }
    print_own_aims(medians);
    return 0;
}

}  // namespace
}  // namespace regroup::bench

int main(int argc, char** argv) {
    using namespace regroup::bench;
    if (argc < 3) {
        std::fprintf(stderr,
                     "usage: restart_bench REGROUP RESTART_WORKER [FAILURES [OF_TORCHRUN]]\n");
        return 2;
    }
    const int failures = argc > 3 ? std::max(1, std::atoi(argv[3])) : kDefaultFailures;
    const int peer_failures = argc > 4 ? std::max(1, std::atoi(argv[4])) : kDefaultPeerFailures;
    return run(std::filesystem::absolute(argv[1]), std::filesystem::absolute(argv[2]), failures,
               peer_failures);
}
