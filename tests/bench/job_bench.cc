// SPDX-License-Identifier: Apache-2.0
//
// The times for which the owner of a job waits, compared with torchrun:
//
//     job_bench REGROUP RESTART_WORKER [ROUNDS [ROUNDS_OF_TORCHRUN]]
//
// From exec to the last worker's first instruction, on one node and through a rendezvous of two;
// from the last worker's exit to the launcher's; and from the death of one of two agents (SIGKILL)
// to the survivor's workers running again. Contestants take turns, round by round.
#include <algorithm>
#include <arpa/inet.h>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <netinet/in.h>
#include <optional>
#include <poll.h>
#include <signal.h>
#include <string>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

#include "tests/bench/peers.h"
#include "tests/bench/report.h"
#include "tests/bench/restart_gate.h"
#include "tests/support/program.h"

namespace regroup::bench {
namespace {

using std::chrono::steady_clock;
using Time = steady_clock::time_point;
using Command = std::vector<std::string>;

constexpr int kDefaultRounds = 20;
constexpr int kDefaultPeerRounds = 8;
constexpr auto kRoundLimit = std::chrono::seconds(60);
/// How long a peer may take to go on without an agent: far longer than its keep-alive timeout.
constexpr auto kReformLimit = std::chrono::seconds(30);
constexpr int kWorkersAlone = 8;
constexpr int kWorkersOfTwo = 2;

double ms_between(Time from, Time to) {
    return std::chrono::duration<double, std::milli>(to - from).count();
}

/// The end of a process, to the microsecond, whichever process reaps it.
class Ending {
   public:
    explicit Ending(pid_t pid) : fd_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))) {}

    /// Waits for the end and returns its time; nothing after `limit`.
    [[nodiscard]] std::optional<Time> wait(std::chrono::milliseconds limit) const {
        pollfd entry{.fd = fd_.get(), .events = POLLIN, .revents = 0};
        if (!fd_ || ::poll(&entry, 1, static_cast<int>(limit.count())) != 1) {
            return std::nullopt;
        }
        return steady_clock::now();
    }

   private:
    UniqueFd fd_;
};

bool accepts(std::uint16_t port) {
    const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

/// One job: its gate, its folder and its agents.
class Job {
   public:
    Job() : socket_(folder_.path() + "/gate"), gate_(socket_) {}

    testing::Program& start(const Command& command) {
        agents_.push_back(std::make_unique<testing::Program>(
            testing::ProgramSpec{command,
                                 {std::string(kGateVariable) + "=" + socket_, "OMP_NUM_THREADS=1"},
                                 folder_.path()}));
        return *agents_.back();
    }
    /// Waits until `workers` workers run that began after `since`. Returns the ms from `since`
    /// until the last of them began.
    [[nodiscard]] std::optional<double> await(std::size_t workers, Time since,
                                              std::chrono::seconds limit) {
        if (!gate_.wait_for_round(workers, since, steady_clock::now() + limit)) {
            return std::nullopt;
        }
        return ms_between(since, gate_.last_start());
    }
    [[nodiscard]] RestartGate& gate() { return gate_; }
    [[nodiscard]] std::string output() const { return agents_.front()->output(); }

   private:
    testing::TemporaryDirectory folder_;
    std::string socket_;
    RestartGate gate_;
    std::vector<std::unique_ptr<testing::Program>> agents_;
};

/// Makes the command of an agent: one of `nodes` nodes with rendezvous port `port` and `workers`
/// workers.
using MakeCommand =
    std::function<Command(const std::string& nodes, int workers, std::uint16_t port)>;

/// The measured ms of each moment, by its name.
using Samples = std::map<std::string, std::vector<double>>;

constexpr const char* kStart = "1 x 8: exec to the last worker's first instruction";
constexpr const char* kExit = "1 x 8: last worker's exit to the launcher's";
constexpr const char* kRendezvous = "2 x 2: exec of both agents to the last worker's";
constexpr const char* kReform = "2 x 2: agent killed to the survivor's workers again";

bool measure_alone(const MakeCommand& make, Samples& samples) {
    Job job;
    const Time begin = steady_clock::now();
    testing::Program& launcher = job.start(make("1", kWorkersAlone, testing::unused_port()));
    const auto start = job.await(kWorkersAlone, begin, kRoundLimit);
    if (!start) {
        std::fprintf(stderr, "job_bench: no workers; it printed:\n%s\n", job.output().c_str());
        return false;
    }
    const Ending launcher_end(launcher.pid());
    std::vector<Ending> worker_ends;
    for (int rank = 0; rank < kWorkersAlone; ++rank) {
        worker_ends.emplace_back(job.gate().pid_of(rank));
    }
    job.gate().open();
    for (const Ending& worker : worker_ends) {
        if (!worker.wait(kRoundLimit)) {
            return false;
        }
    }
    const Time last_exit = steady_clock::now();
    const auto end = launcher_end.wait(kRoundLimit);
    if (!end || launcher.wait() != 0) {
        std::fprintf(stderr, "job_bench: no good end; it printed:\n%s\n", job.output().c_str());
        return false;
    }
    samples[kStart].push_back(*start);
    samples[kExit].push_back(ms_between(last_exit, *end));
    return true;
}

bool measure_rendezvous(const MakeCommand& make, Samples& samples) {
    Job job;
    const Command command = make("2", kWorkersOfTwo, testing::unused_port());
    const Time begin = steady_clock::now();
    testing::Program& first = job.start(command);
    testing::Program& second = job.start(command);
    const auto start = job.await(2 * kWorkersOfTwo, begin, kRoundLimit);
    job.gate().open();
    if (!start || first.wait() != 0 || second.wait() != 0) {
        std::fprintf(stderr, "job_bench: no rendezvous; it printed:\n%s\n", job.output().c_str());
        return false;
    }
    samples[kRendezvous].push_back(*start);
    return true;
}

/// False if the job never began, or its survivor did not run again.
bool measure_reform(const MakeCommand& make, Samples& samples) {
    Job job;
    const std::uint16_t port = testing::unused_port();
    const Command command = make("1:2", kWorkersOfTwo, port);
    const Time begin = steady_clock::now();
    (void)job.start(command);
    // The first agent runs the daemon, and survives.
    if (!testing::eventually([&] { return accepts(port); }, kRoundLimit)) {
        return false;
    }
    const testing::Program& lost = job.start(command);
    if (!job.await(2 * kWorkersOfTwo, begin, kRoundLimit)) {
        std::fprintf(stderr, "job_bench: no job of two; it printed:\n%s\n", job.output().c_str());
        return false;
    }
    const Time death = steady_clock::now();
    lost.signal(SIGKILL);
    // Its workers end with it. The survivor's workers must notice the loss, as in a collective.
    if (!job.gate().break_off(kWorkersOfTwo, death, death + kReformLimit)) {
        return false;
    }
    const auto again = job.await(kWorkersOfTwo, death, kReformLimit);
    job.gate().open();
    if (again) {
        samples[kReform].push_back(*again);
    }
    return again.has_value();
}

Command regroup_command(const std::string& regroup, const std::string& worker,
                        const std::string& nodes, int workers, std::uint16_t port) {
    Command command{regroup, "run", "--nnodes=" + nodes,
                    "--nproc-per-node=" + std::to_string(workers), "--max-restarts=3"};
    if (nodes == "1") {
        command.emplace_back("--standalone");
    } else {
        command.emplace_back("--rdzv-backend=c10d");
        command.push_back("--rdzv-endpoint=127.0.0.1:" + std::to_string(port));
    }
    command.push_back(worker);
    return command;
}

void print(const Samples& ours, const Samples& theirs) {
    Table table({"ms", "rounds", "median", "worst", "torchrun: rounds", "median", "worst",
                 "torchrun / regroup"});
    for (const char* moment : {kStart, kRendezvous, kReform, kExit}) {
        const Summary mine = summarize(ours.at(moment));
        std::vector<std::string> row{moment, std::to_string(mine.count), fixed(mine.median, 2),
                                     fixed(mine.worst, 2)};
        const auto found = theirs.find(moment);
        if (found != theirs.end() && !found->second.empty()) {
            const Summary other = summarize(found->second);
            row.insert(row.end(), {std::to_string(other.count), fixed(other.median, 2),
                                   fixed(other.worst, 2), fixed(other.median / mine.median, 0)});
        } else {
            const bool never = !theirs.empty() && moment == kReform;
            row.insert(row.end(),
                       {never ? "1" : "-", never ? "never" : "-", never ? "> 30 s" : "-", "-"});
        }
        table.add(row);
    }
    table.print();
}

int run(const std::string& regroup, const std::string& worker, int rounds, int peer_rounds) {
    print_head("job: the moments for which its owner waits, one node and two agents");
    const auto torchrun = find_torchrun();
    const testing::TemporaryDirectory logs;
    const MakeCommand make_ours = [&](const std::string& nodes, int workers, std::uint16_t port) {
        return regroup_command(regroup, worker, nodes, workers, port);
    };
    const MakeCommand make_theirs = [&](const std::string& nodes, int workers, std::uint16_t port) {
        return torchrun_command(*torchrun, nodes, workers, 3, port, logs.path(), {worker});
    };
    Samples ours;
    Samples theirs;
    for (int round = 0; round < rounds; ++round) {
        if (!measure_alone(make_ours, ours) || !measure_rendezvous(make_ours, ours) ||
            !measure_reform(make_ours, ours)) {
            return 1;
        }
        if (!torchrun || round >= peer_rounds) {
            continue;
        }
        if (!measure_alone(make_theirs, theirs) || !measure_rendezvous(make_theirs, theirs)) {
            return 1;
        }
        // A peer that failed this once is not tried again.
        if (round == 0 || theirs.count(kReform) > 0) {
            (void)measure_reform(make_theirs, theirs);
        }
    }
    print(ours, theirs);
    return 0;
}

}  // namespace
}  // namespace regroup::bench

int main(int argc, char** argv) {
    using namespace regroup::bench;
    if (argc < 3) {
        std::fprintf(stderr, "usage: job_bench REGROUP RESTART_WORKER [ROUNDS [OF_TORCHRUN]]\n");
        return 2;
    }
    const int rounds = argc > 3 ? std::max(1, std::atoi(argv[3])) : kDefaultRounds;
    const int peer_rounds =
        argc > 4 ? std::max(1, std::atoi(argv[4])) : std::min(rounds, kDefaultPeerRounds);
    return run(std::filesystem::absolute(argv[1]), std::filesystem::absolute(argv[2]), rounds,
               peer_rounds);
}
