// SPDX-License-Identifier: Apache-2.0
//
// Snapshots of a job of two nodes, each with one rank, on the loopback:
//
//     snapshot_job_bench REGROUP SNAPSHOT_WORKER [--quick]
//
// - what a save of 1 GB every ten steps costs, the copy to the other node included;
// - the time of `load` after kill -9 of all workers of the node with the gigabyte;
// - the time of `load` after kill -9 of that node, agent and all, when another one has come: over
//   the network, beside a plain transfer through a socket into touched memory.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <netinet/in.h>
#include <optional>
#include <signal.h>
#include <sstream>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "tests/bench/report.h"
#include "tests/support/program.h"

namespace regroup::bench {
namespace {

using Command = std::vector<std::string>;
using Clock = std::chrono::steady_clock;
using testing::Program;

constexpr std::chrono::seconds kLimit(300);
constexpr double kStepsAim = 1.03;
constexpr double kMemoryAim = 0.5;
constexpr double kNetworkAim = 1.3;

struct Size {
    std::size_t megabytes;
    int step_ms;
    int blocks;
    int failures;
};

/// A line that a rank wrote: "loaded RANK STEP SECONDS" and the others of snapshot_worker.cc.
struct Fact {
    std::string kind;
    double first = 0;
    double second = 0;
    double third = 0;
};

/// A job that lives as long as this. Rank 1, on the second node, can be killed.
class Job {
   public:
    Job(const Command& programs, const Size& size, bool on_first)
        : programs_(programs),
          size_(size),
          on_first_(on_first),
          endpoint_("127.0.0.1:" + std::to_string(testing::unused_port())) {
        nodes_[0] = start_node(0);
        nodes_[1] = start_node(1);
    }

    [[nodiscard]] std::vector<Fact> facts(const std::string& kind) const {
        std::vector<Fact> result;
        for (const std::string& line :
             testing::lines_of(testing::read_file(folder_.path() + "/facts"))) {
            std::istringstream words(line);
            Fact fact;
            words >> fact.kind >> fact.first >> fact.second >> fact.third;
            if (fact.kind == kind) {
                result.push_back(fact);
            }
        }
        return result;
    }
    /// Whether both ranks of round `round` are ready.
    [[nodiscard]] bool await_ready(std::size_t round) const {
        return testing::eventually(
                   [&] { return facts("ready").size() >= 2 * round || !nodes_[0]->running(); },
                   kLimit) &&
               nodes_[0]->running();
    }
    void kill_second_worker() const {
        for (const pid_t pid : nodes_[1]->family()) {
            const auto ready = facts("ready");
            if (std::ranges::any_of(ready, [&](const Fact& fact) { return fact.first == pid; })) {
                ::kill(pid, SIGKILL);
            }
        }
    }
    void replace_second_node() {
        for (const pid_t pid : nodes_[1]->family()) {
            ::kill(pid, SIGKILL);
        }
        static_cast<void>(nodes_[1]->wait());
        nodes_[1] = start_node(1);
    }
    [[nodiscard]] std::string last_words() const {
        return nodes_[0]->output() + nodes_[1]->output();
    }

   private:
    [[nodiscard]] std::unique_ptr<Program> start(const Command& command) const {
        return std::make_unique<Program>(
            testing::ProgramSpec{command, {"OMP_NUM_THREADS=1"}, folder_.path()});
    }
    [[nodiscard]] std::unique_ptr<Program> start_node(int number) const {
        const std::string large = std::to_string(size_.megabytes);
        return start({programs_[0], "run", "--nnodes=2", "--nproc-per-node=1", "--max-restarts=100",
                      "--max-node-failures=100", "--restart-delay=0",
                      "--rdzv-endpoint=" + endpoint_,
                      "--local-addr=127.0.0." + std::to_string(2 + number),
                      "--node-rank=" + std::to_string(number), programs_[1], folder_.path(),
                      on_first_ ? large : "1", on_first_ ? "1" : large,
                      std::to_string(size_.step_ms), std::to_string(size_.blocks)});
    }

    Command programs_;
    Size size_;
    bool on_first_;
    std::string endpoint_;
    testing::TemporaryDirectory folder_;
    std::unique_ptr<Program> nodes_[2];
};

/// The time of `load` of the rank with the state.
std::optional<double> load_of_round(const Job& job, std::size_t round) {
    const auto loaded = job.facts("loaded");
    for (std::size_t i = 2 * round - 2; i < loaded.size(); ++i) {
        if (loaded[i].first == 1 && loaded[i].second > 0) {
            return loaded[i].third;
        }
    }
    return std::nullopt;
}

/// Seconds for `bytes` through a socket of the loopback, into memory that was touched before.
double plain_transfer(std::size_t bytes) {
    int pair[2];
    const std::vector<std::byte> from(bytes, std::byte{1});
    std::vector<std::byte> to(bytes, std::byte{2});
    const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (::bind(listener, generic, size) != 0 || ::listen(listener, 1) != 0 ||
        ::getsockname(listener, generic, &size) != 0) {
        return 0;
    }
    pair[0] = ::socket(AF_INET, SOCK_STREAM, 0);
    if (::connect(pair[0], generic, size) != 0) {
        return 0;
    }
    pair[1] = ::accept(listener, nullptr, nullptr);
    const auto begin = Clock::now();
    std::thread sender([&] {
        for (std::size_t sent = 0; sent < bytes;) {
            const auto now = ::write(pair[0], from.data() + sent, bytes - sent);
            if (now <= 0) {
                return;
            }
            sent += static_cast<std::size_t>(now);
        }
    });
    for (std::size_t received = 0; received < bytes;) {
        const auto now = ::read(pair[1], to.data() + received, bytes - received);
        if (now <= 0) {
            break;
        }
        received += static_cast<std::size_t>(now);
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    sender.join();
    for (const int each : {pair[0], pair[1], listener}) {
        ::close(each);
    }
    return seconds;
}

bool measure_steps(const Command& programs, const Size& size) {
    const Job job(programs, size, true);
    if (!job.await_ready(1)) {
        std::fprintf(stderr, "snapshot_job_bench: no end of the steps:\n%s",
                     job.last_words().c_str());
        return false;
    }
    std::vector<double> with;
    std::vector<double> without;
    for (const Fact& fact : job.facts("steps")) {
        with.push_back(fact.first);
        without.push_back(fact.second);
    }
    const double ratio = summarize(with).median / summarize(without).median;
    std::printf("ten steps without a save %.2f s, with one %.2f s\n", summarize(without).median,
                summarize(with).median);
    print_verdict("ten steps with a save / without", ratio, Aim::at_most, kStepsAim);
    return true;
}

bool measure_loads(const Command& programs, Size size) {
    size.blocks = 0;
    Job job(programs, size, false);
    std::vector<double> from_memory;
    std::vector<double> from_network;
    std::vector<double> plain;
    std::size_t round = 1;
    const auto measure = [&](std::vector<double>& seconds, const std::function<void()>& strike) {
        if (!job.await_ready(round)) {
            return false;
        }
        strike();
        const bool is_ready = job.await_ready(++round);
        const auto load = load_of_round(job, round);
        seconds.push_back(load.value_or(0));
        return is_ready && load.has_value();
    };
    for (int failure = 0; failure < size.failures; ++failure) {
        plain.push_back(plain_transfer(size.megabytes * 1'000'000));
        if (!measure(from_memory, [&] { job.kill_second_worker(); }) ||
            !measure(from_network, [&] { job.replace_second_node(); })) {
            std::fprintf(stderr, "snapshot_job_bench: round %zu does not load:\n%s", round,
                         job.last_words().c_str());
            return false;
        }
    }
    std::printf(
        "load after the loss of the worker %.3f s, of the node %.3f s; as many bytes through "
        "a socket %.3f s\n",
        summarize(from_memory).median, summarize(from_network).median, summarize(plain).median);
    print_verdict("load from this node's memory, seconds", summarize(from_memory).median,
                  Aim::at_most, kMemoryAim);
    print_verdict("load from another node / plain transfer",
                  summarize(from_network).median / summarize(plain).median, Aim::at_most,
                  kNetworkAim);
    return true;
}

int run(int argc, char** argv) {
    const Command words(argv + 1, argv + argc);
    if (words.size() < 2) {
        std::fprintf(stderr, "usage: snapshot_job_bench REGROUP SNAPSHOT_WORKER [--quick]\n");
        return 2;
    }
    const bool quick = words.size() > 2 && words[2] == "--quick";
    const Size size = quick ? Size{16, 10, 1, 1} : Size{1000, 1000, 3, 3};
    print_head("snapshots of two nodes, " + std::to_string(size.megabytes) + " MB");
    return measure_steps(words, size) && measure_loads(words, size) ? 0 : 1;
}

}  // namespace
}  // namespace regroup::bench

int main(int argc, char** argv) {
    return regroup::bench::run(argc, argv);
}
