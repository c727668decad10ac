// SPDX-License-Identifier: Apache-2.0
//
// Time from SIGKILL of a worker until its agent knows, by the memory of the worker:
//
//     death_bench DEATH_VICTIM [ROUNDS]
//
// Each death is observed in two ways that the agent uses. One is the robust futex in the page that
// it shares with the worker, with the exit status from /proc. The other is a pidfd, which becomes
// readable only after the kernel has freed the memory.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <signal.h>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/link/death_watch.h"
#include "agent/link/link_server.h"
#include "agent/process/proc_files.h"
#include "rendezvous/worker_link/messages.h"
#include "tests/bench/report.h"
#include "tests/support/program.h"

namespace regroup::bench {
namespace {

using std::chrono::steady_clock;
using Time = steady_clock::time_point;

constexpr int kDefaultRounds = 10;
constexpr std::chrono::seconds kLimit(60);
constexpr std::uint64_t kKey = 1;

/// When the agent knew of a death, in us since the signal.
struct Notice {
    double futex = 0;
    double pidfd = 0;
};

double us_since(Time then) {
    return std::chrono::duration<double, std::micro>(steady_clock::now() - then).count();
}

/// The agent's means to observe one worker.
class Observer {
   public:
    explicit Observer(const std::string& victim) : victim_(victim) {}

    std::optional<Notice> observe(std::size_t megabytes) {
        auto server = agent::LinkServer::open(
            io_, {.on_hello = [&](std::uint64_t, pid_t, const worker_link::Hello&,
                                  bool) { attached_ = true; },
                  .on_message = [](std::uint64_t, const worker_link::FromWorker&) {},
                  .on_trouble =
                      [](const std::string& line) {
                          std::fprintf(stderr, "death_bench: %s\n", line.c_str());
                      }});
        auto watch = agent::DeathWatch::start(io_, [&](std::uint64_t) { on_futex(); });
        const auto page = agent::SharedPage::create();
        if (!server || !watch || !page) {
            return std::nullopt;
        }
        const std::string secret = (*server)->expect(kKey, *page);
        testing::Program victim(
            {{victim_, std::to_string(megabytes)},
             {std::string(worker_link::kSocketVariable) + "=" + (*server)->address(),
              std::string(worker_link::kWorkerIdVariable) + "=" + secret},
             ""});
        (*watch)->add(kKey, *page);
        pid_ = victim.pid();
        auto ended = agent::ReadableWatch::open(
            io_, UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0))),
            [&] { pidfd_us_ = us_since(killed_at_); });
        if (!ended || !run_until([&] { return attached_; }) || !victim.prints("ready", kLimit)) {
            std::fprintf(stderr, "death_bench: the victim did not attach: %s\n",
                         victim.output().c_str());
            return std::nullopt;
        }
        ended->arm();
        killed_at_ = steady_clock::now();
        ::kill(pid_, SIGKILL);
        if (!run_until([&] { return futex_us_ && pidfd_us_; })) {
            std::fprintf(stderr, "death_bench: not told of the death by %s\n",
                         futex_us_ ? "the pidfd" : "the futex");
            return std::nullopt;
        }
        return Notice{*futex_us_, *pidfd_us_};
    }

   private:
    void on_futex() {
        // The agent must know the exit status, not only the end.
        if (agent::read_exit(pid_)) {
            futex_us_ = us_since(killed_at_);
        }
    }
    template <class Condition>
    bool run_until(const Condition& condition) {
        const Time deadline = steady_clock::now() + kLimit;
        while (!condition() && steady_clock::now() < deadline) {
            io_.restart();
            io_.run_one_for(std::chrono::seconds(1));
        }
        return condition();
    }

    std::string victim_;
    boost::asio::io_context io_;
    pid_t pid_ = 0;
    bool attached_ = false;
    Time killed_at_{};
    std::optional<double> futex_us_;
    std::optional<double> pidfd_us_;
};

/// Available memory in MB.
std::size_t available_mb() {
    std::ifstream file("/proc/meminfo");
    std::string word;
    std::size_t kilobytes = 0;
    while (file >> word) {
        if (word == "MemAvailable:") {
            file >> kilobytes;
        }
    }
    return kilobytes / 1024;
}

int run(const std::string& victim, int rounds) {
    print_head("death: SIGKILL of a worker to the agent's knowledge of it and of how it ended");
    constexpr std::size_t kStandbyMb = 2048;
    Table table(
        {"us", "deaths", "futex: median", "worst", "pidfd: median", "worst", "pidfd / futex"});
    double worst_median = 0;
    double ratio = 0;
    std::string largest;
    for (const std::size_t megabytes : {0UL, 1024UL, 4096UL}) {
        const std::string name = std::to_string(megabytes / 1024) + " GB elastic";
        if (available_mb() < megabytes + kStandbyMb) {
            std::printf("  %s is left out: there is not enough memory\n", name.c_str());
            continue;
        }
        std::vector<double> futex;
        std::vector<double> pidfd;
        for (int round = 0; round < rounds; ++round) {
            const auto notice = Observer(victim).observe(megabytes);
            if (!notice) {
                return 1;
            }
            futex.push_back(notice->futex);
            pidfd.push_back(notice->pidfd);
        }
        const Summary early = summarize(futex);
        const Summary late = summarize(pidfd);
        table.add({name, std::to_string(rounds), fixed(early.median, 0), fixed(early.worst, 0),
                   fixed(late.median, 0), fixed(late.worst, 0),
                   fixed(late.median / early.median, 1)});
        worst_median = std::max(worst_median, early.median);
        ratio = late.median / early.median;
        largest = name;
    }
    table.print();
    std::printf("\n");
    print_verdict("futex, any size, median us", worst_median, Aim::at_most, 300);
    print_verdict("pidfd / futex, " + largest, ratio, Aim::at_least, 100);
    return 0;
}

}  // namespace
}  // namespace regroup::bench

int main(int argc, char** argv) {
    using namespace regroup::bench;
    if (argc < 2) {
        std::fprintf(stderr, "usage: death_bench DEATH_VICTIM [ROUNDS]\n");
        return 2;
    }
    const int rounds = argc > 2 ? std::max(1, std::atoi(argv[2])) : kDefaultRounds;
    return run(std::filesystem::absolute(argv[1]), rounds);
}
