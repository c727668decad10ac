// SPDX-License-Identifier: Apache-2.0
//
// Time from the loss of a part of a job to the next step that its survivors commit, with elastic
// workers; compared with workers that regroup or torchrun restarts:
//
//     recover_bench REGROUP CHAOS_WORKER [FAILURES [FAILURES_OF_OTHERS [PART...]]]
//
// PART is alone, agents, cable, daemon or torchrun; the default is all of them. One job lives
// through all failures of a kind. Each step has 1 ms of additional time.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <optional>
#include <signal.h>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "tests/bench/peers.h"
#include "tests/bench/recover_job.h"
#include "tests/bench/report.h"

namespace regroup::bench {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using Time = LiveSteps::Time;

constexpr int kDefaultFailures = 15;
constexpr int kDefaultPeerFailures = 4;
constexpr int kStepUs = 1000;
constexpr std::chrono::seconds kStartLimit(60);
constexpr std::chrono::seconds kRecoverLimit(40);
constexpr int kWorkersAlone = 4;
constexpr int kAgents = 4;
constexpr int kWorkersEach = 2;
constexpr int kHeartbeatMs = 3000;

struct Programs {
    std::string regroup;
    std::string worker;
};

/// Waits between two failures, for a time that is not in phase with any polling interval.
void leave_alone(int failure) {
    constexpr int kFirst = 400;
    constexpr int kStep = 37;
    constexpr int kSpread = 100;
    std::this_thread::sleep_for(milliseconds(kFirst + failure * kStep % kSpread));
}

/// The times of one kind of failure, in ms, and the error if there was one.
struct Measured {
    std::vector<double> ms;
    std::string trouble;
    bool started = true;
};

/// Injects the n-th failure; false if there is nothing to kill.
using Strike = std::function<bool(int failure)>;
/// Restores the job afterwards.
using Mend = std::function<void(int failure)>;

Measured measure(RecoverJob& job, std::uint32_t world, int failures, const Strike& strike,
                 const Mend& mend = {}) {
    Measured result;
    Time since{};
    for (int failure = 0; failure < failures; ++failure) {
        const auto limit = failure == 0 ? kStartLimit : kRecoverLimit;
        if (!job.steps().await_round(since, world, limit)) {
            result.trouble = "no world of " + std::to_string(world) + " before failure " +
                             std::to_string(failure + 1) + job.last_words();
            result.started = failure > 0;
            return result;
        }
        leave_alone(failure);
        since = steady_clock::now();
        if (!strike(failure)) {
            result.trouble = "nothing to kill" + job.last_words();
            return result;
        }
        const auto again = job.steps().await_round(since, 0, kRecoverLimit);
        if (!again) {
            result.trouble =
                "never within " + std::to_string(kRecoverLimit.count()) + " s" + job.last_words();
            return result;
        }
        result.ms.push_back(std::chrono::duration<double, std::milli>(*again - since).count());
        if (mend) {
            mend(failure);
        }
    }
    return result;
}

/// The rows of the table, and the aims.
class Results {
   public:
    void add(const std::string& name, const Measured& measured) {
        if (!measured.started) {
            table_.add({name, "0", "not started", "-", "-"});
        } else if (measured.ms.empty()) {
            table_.add(
                {name, "1", "never", "-", "> " + std::to_string(kRecoverLimit.count()) + " s"});
        } else {
            const Summary all = summarize(measured.ms);
            table_.add({name, std::to_string(all.count), fixed(all.median, 2), fixed(all.min, 2),
                        fixed(all.worst, 2)});
            medians_[name] = all.median;
        }
        if (!measured.trouble.empty()) {
            std::fprintf(stderr, "recover_bench: %s: %s\n", name.c_str(), measured.trouble.c_str());
        }
    }
    void aim(const std::string& name, double limit) {
        if (medians_.count(name) != 0) {
            aims_.push_back([=, this] {
                print_verdict(name + ", median ms", medians_.at(name), Aim::at_most, limit);
            });
        }
    }
    void ratio(const std::string& slow, const std::string& fast, double limit) {
        if (medians_.count(slow) != 0 && medians_.count(fast) != 0) {
            aims_.push_back([=, this] {
                print_verdict(slow + " / " + fast, medians_.at(slow) / medians_.at(fast),
                              Aim::at_least, limit);
            });
        }
    }
    void print() const {
        table_.print();
        std::printf("\n");
        for (const auto& aim : aims_) {
            aim();
        }
    }

   private:
    Table table_{{"ms to the next step", "failures", "median", "min", "worst"}};
    std::map<std::string, double> medians_;
    std::vector<std::function<void()>> aims_;
};

Command alone(const Programs& programs, const RecoverJob& job) {
    Command command{programs.regroup,      "run",
                    "--standalone",        "--nproc-per-node=" + std::to_string(kWorkersAlone),
                    "--max-restarts=1000", "--max-node-failures=0",
                    "--restart-delay=0",   programs.worker};
    const Command arguments = job.worker_arguments(kStepUs);
    command.insert(command.end(), arguments.begin(), arguments.end());
    return command;
}

/// The command of agent `number`, one of several with rendezvous `endpoint`.
Command one_of(const Programs& programs, const RecoverJob& job, const std::string& endpoint,
               const std::string& nodes, const std::string& address, const Command& flags = {}) {
    Command command{programs.regroup,          "run",
                    "--nnodes=" + nodes,       "--nproc-per-node=" + std::to_string(kWorkersEach),
                    "--max-restarts=1000",     "--max-node-failures=0",
                    "--rdzv-backend=c10d",     "--rdzv-endpoint=" + endpoint,
                    "--local-addr=" + address, "--last-call=0.5",
                    "--grow-after=0"};
    command.insert(command.end(), flags.begin(), flags.end());
    command.push_back(programs.worker);
    const Command arguments = job.worker_arguments(kStepUs);
    command.insert(command.end(), arguments.begin(), arguments.end());
    return command;
}

bool kill_worker(const RecoverJob& job, std::size_t agent, std::size_t worker) {
    const pid_t pid = job.worker(agent, worker);
    return pid != 0 && ::kill(pid, SIGKILL) == 0;
}

bool kill_all(const std::vector<pid_t>& pids) {
    return !pids.empty() && std::all_of(pids.begin(), pids.end(),
                                        [](pid_t pid) { return ::kill(pid, SIGKILL) == 0; });
}

constexpr const char* kAloneName = "1 agent x 4: a worker, processes kept";
constexpr const char* kAloneRestarted = "1 agent x 4: a worker, all restarted";
constexpr const char* kAloneTorchrun = "1 agent x 4: a worker, torchrun";
constexpr const char* kRankName = "4 agents x 2: a worker, processes kept";
constexpr const char* kRankTorchrun = "4 agents x 2: a worker, torchrun";
constexpr const char* kAgentName = "4 agents x 2: an agent, the others go on";
constexpr const char* kStandbyName = "4 agents x 2: an agent, a standby is there";
constexpr const char* kAgentTorchrun = "4 agents x 2: an agent, torchrun";
constexpr const char* kCableName = "3 agents x 2: a cable is cut, heartbeat 3 s";

void measure_alone(const Programs& programs, int failures, bool restarted, Results& results) {
    RecoverJob job;
    Command command = alone(programs, job);
    if (restarted) {
        command.emplace_back("--restarted");
    }
    job.start_agent(0, command);
    results.add(restarted ? kAloneRestarted : kAloneName,
                measure(job, kWorkersAlone, failures, [&](int failure) {
                    return kill_worker(job, 0, static_cast<std::size_t>(failure));
                }));
}

std::string address_of(std::size_t agent) {
    return "127.0.0." + std::to_string(agent + 2);
}

/// Four agents on the loopback and a daemon, with or without a standby.
void measure_agents(const Programs& programs, int failures, bool kill_agents, bool standby,
                    Results& results) {
    RecoverJob job;
    const std::string endpoint = "127.0.0.1:" + std::to_string(testing::unused_port());
    auto& daemon = job.start_service({programs.regroup, "serve", "--listen=" + endpoint});
    if (!daemon.prints("listening on")) {
        return;
    }
    const std::string nodes = "1:" + std::to_string(kAgents);
    const Command flags = standby ? Command{"--standbys=1"} : Command{"--standbys=0"};
    const auto start = [&](std::size_t agent) {
        job.start_agent(agent, one_of(programs, job, endpoint, nodes, address_of(agent), flags));
    };
    const std::size_t count = kAgents + (standby ? 1 : 0);
    for (std::size_t agent = 0; agent < kAgents; ++agent) {
        start(agent);
    }
    constexpr std::uint32_t kWorld = kAgents * kWorkersEach;
    if (standby && job.steps().await_round({}, kWorld, kStartLimit)) {
        start(kAgents);
        (void)job.agent(kAgents).prints("standby");
    }
    const auto strike = [&](int failure) {
        // Never agent 0.
        const std::size_t agent = 1 + static_cast<std::size_t>(failure) % (count - 1);
        if (!kill_agents) {
            return kill_worker(job, agent % kAgents, static_cast<std::size_t>(failure) / 4);
        }
        for (const pid_t pid : testing::children_of(job.agent(agent).pid())) {
            return ::kill(pid, SIGKILL) == 0;
        }
        return false;
    };
    const auto mend = [&](int failure) {
        if (kill_agents) {
            const std::size_t agent = 1 + static_cast<std::size_t>(failure) % (count - 1);
            (void)job.agent(agent).wait();
            start(agent);
            if (standby) {
                (void)job.agent(agent).prints("standby");
            }
        }
    };
    results.add(!kill_agents ? kRankName
                : standby    ? kStandbyName
                             : kAgentName,
                measure(job, kWorld, failures, strike, mend));
}

void measure_cable(const Programs& programs, int failures, Results& results) {
    constexpr std::size_t kHosts = 3;
    const auto network = chaos::Network::lay(kHosts + 1);
    if (!network) {
        std::printf("  cables are left out: %s\n", network.error().detail.c_str());
        return;
    }
    RecoverJob job(&*network);
    const std::string endpoint = chaos::Network::address(0) + ":29400";
    auto& daemon = job.start_service({programs.regroup, "serve", "--listen=" + endpoint});
    if (!daemon.prints("listening on")) {
        return;
    }
    for (std::size_t agent = 0; agent < kHosts; ++agent) {
        job.start_agent(agent,
                        one_of(programs, job, endpoint, "1:3", chaos::Network::address(agent + 1)));
    }
    const auto host = [](int failure) { return 1 + static_cast<std::size_t>(failure) % kHosts; };
    results.add(kCableName, measure(
                                job, kHosts * kWorkersEach, failures,
                                [&](int failure) {
                                    network->pull(host(failure));
                                    return true;
                                },
                                [&](int failure) { network->plug(host(failure)); }));
}

/// Starts four agents of torchrun, the last of which may be lost.
void start_torchrun(RecoverJob& job, const Command& program, const Torchrun& torchrun,
                    const std::string& logs) {
    const std::uint16_t port = testing::unused_port();
    const std::string nodes = std::to_string(kAgents - 1) + ":" + std::to_string(kAgents);
    for (std::size_t agent = 0; agent < kAgents; ++agent) {
        job.start_agent(agent,
                        torchrun_command(torchrun, nodes, kWorkersEach, 1000, port, logs, program));
        // The first agent runs the daemon.
        std::this_thread::sleep_for(milliseconds(agent == 0 ? 1500 : 0));
    }
}

void measure_torchrun(const Programs& programs, const Torchrun& torchrun, int failures,
                      Results& results) {
    const testing::TemporaryDirectory logs;
    const auto program = [&](const RecoverJob& job) {
        Command command{programs.worker};
        const Command arguments = job.worker_arguments(kStepUs);
        command.insert(command.end(), arguments.begin(), arguments.end());
        command.emplace_back("--restarted");
        return command;
    };
    {
        RecoverJob job;
        job.start_agent(0, torchrun_command(torchrun, "1", kWorkersAlone, 1000,
                                            testing::unused_port(), logs.path(), program(job)));
        results.add(kAloneTorchrun, measure(job, kWorkersAlone, failures, [&](int failure) {
                        return kill_worker(job, 0, static_cast<std::size_t>(failure));
                    }));
    }
    {
        RecoverJob job;
        start_torchrun(job, program(job), torchrun, logs.path());
        results.add(kRankTorchrun, measure(job, kAgents * kWorkersEach, failures, [&](int failure) {
                        return kill_worker(job, 1, static_cast<std::size_t>(failure));
                    }));
    }
    // A new job each time: torchrun may not admit a late agent.
    Measured all;
    for (int failure = 0; failure < failures && all.trouble.empty(); ++failure) {
        RecoverJob job;
        start_torchrun(job, program(job), torchrun, logs.path());
        const Measured one = measure(job, kAgents * kWorkersEach, 1, [&](int) {
            // Also kills its workers, which would train on. Correct workers end with their
            // launcher.
            return kill_all(job.agent(kAgents - 1).family());
        });
        all.ms.insert(all.ms.end(), one.ms.begin(), one.ms.end());
        all.trouble = one.trouble;
        all.started = one.started;
    }
    results.add(kAgentTorchrun, all);
}

/// Compares the steps per second before and while the daemon is killed and restarted.
void measure_daemon(const Programs& programs) {
    RecoverJob job;
    const std::string endpoint = "127.0.0.1:" + std::to_string(testing::unused_port());
    const Command serve{programs.regroup, "serve", "--listen=" + endpoint,
                        "--state=" + job.folder() + "/state"};
    testing::Program& daemon = job.start_service(serve);
    if (!daemon.prints("listening on")) {
        return;
    }
    for (std::size_t agent = 0; agent < 2; ++agent) {
        job.start_agent(agent, one_of(programs, job, endpoint, "2", address_of(agent)));
    }
    if (!job.steps().await_round({}, 2 * kWorkersEach, kStartLimit)) {
        std::fprintf(stderr, "recover_bench: no job%s\n", job.last_words().c_str());
        return;
    }
    constexpr milliseconds kLook(3000);
    constexpr milliseconds kAway(1000);
    std::this_thread::sleep_for(milliseconds(500));
    const Time before = steady_clock::now();
    std::this_thread::sleep_for(kLook);
    const Time death = steady_clock::now();
    daemon.signal(SIGKILL);
    std::this_thread::sleep_for(kAway);
    job.start_service(serve);
    std::this_thread::sleep_for(kLook - kAway);
    const Time after = steady_clock::now();
    const auto usual = static_cast<double>(job.steps().steps_between(before, death));
    const auto meanwhile = static_cast<double>(job.steps().steps_between(death, after)) *
                           ((death - before) / std::chrono::duration<double>(after - death));
    std::printf(
        "\n  2 agents x 2: the daemon is killed, and is back after 1 s: %.0f steps in 3 s "
        "before, %.0f meanwhile;\n  the longest pause was %.1f ms, before it %.1f ms\n",
        usual, meanwhile, job.steps().longest_pause(death, after).count() * 1000,
        job.steps().longest_pause(before, death).count() * 1000);
    if (usual > 0) {
        print_verdict("steps per second, daemon killed / before", meanwhile / usual, Aim::at_least,
                      0.9);
    }
    // The job also recovers from the next failure.
    const Time since = steady_clock::now();
    const bool struck = kill_worker(job, 1, 0);
    const auto again = job.steps().await_round(since, 0, kRecoverLimit);
    if (!struck || !again) {
        std::fprintf(stderr, "recover_bench: nothing recovered after it%s\n",
                     job.last_words().c_str());
        return;
    }
    std::printf("  a worker killed after that: %.1f ms\n",
                std::chrono::duration<double, std::milli>(*again - since).count());
}

int run(const Programs& programs, int failures, int peer_failures,
        const std::vector<std::string>& parts) {
    const auto wanted = [&](const std::string& part) {
        return parts.empty() || std::count(parts.begin(), parts.end(), part) > 0;
    };
    print_head("recover: something is killed, until the next step that the survivors commit");
    const auto torchrun = wanted("torchrun") ? find_torchrun() : std::nullopt;
    Results results;
    if (wanted("alone")) {
        measure_alone(programs, failures, false, results);
        measure_alone(programs, peer_failures, true, results);
    }
    if (wanted("agents")) {
        measure_agents(programs, failures, false, false, results);
        measure_agents(programs, peer_failures, true, false, results);
        measure_agents(programs, peer_failures, true, true, results);
    }
    if (wanted("cable")) {
        measure_cable(programs, std::min(peer_failures, 3), results);
    }
    if (torchrun) {
        measure_torchrun(programs, *torchrun, peer_failures, results);
    }
    results.aim(kAloneName, 20);
    results.aim(kRankName, 150);
    results.aim(kAgentName, 150);
    results.aim(kStandbyName, 150);
    results.aim(kCableName, kHeartbeatMs + 300);
    results.ratio(kAloneRestarted, kAloneName, 5);
    results.ratio(kAloneTorchrun, kAloneName, 20);
    results.ratio(kRankTorchrun, kRankName, 20);
    results.ratio(kAgentTorchrun, kAgentName, 20);
    results.print();
    if (wanted("daemon")) {
        measure_daemon(programs);
    }
    return 0;
}

}  // namespace
}  // namespace regroup::bench

int main(int argc, char** argv) {
    using namespace regroup::bench;
    if (argc < 3) {
        std::fprintf(
            stderr, "usage: recover_bench REGROUP CHAOS_WORKER [FAILURES [OF_OTHERS [PART...]]]\n");
        return 2;
    }
    const int failures = argc > 3 ? std::max(1, std::atoi(argv[3])) : kDefaultFailures;
    const int peer_failures =
        argc > 4 ? std::max(1, std::atoi(argv[4])) : std::min(failures, kDefaultPeerFailures);
    const Programs programs{std::filesystem::absolute(argv[1]), std::filesystem::absolute(argv[2])};
    return run(programs, failures, peer_failures,
               std::vector<std::string>(argv + std::min(argc, 5), argv + argc));
}
