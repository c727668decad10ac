// SPDX-License-Identifier: Apache-2.0
//
// An elastic worker for end-to-end tests: the SDK's loop with hardly any work, until the file
// $PROBE_DIR/finish is there. It writes marks as probe.cc does, to $PROBE_DIR/NAME.ROUND.RANK, with
// its pid, the holders of GPU memory and the state of the loop: `up` at the start of each round,
// `left` when its node leaves, `done` at the end. The files below are in $PROBE_DIR. The argument
// chooses what else happens:
//
//     beat      rank 0 writes the number of each step to the file `step` (so does `throw`)
//     keep      the loop saves a snapshot every second step; beats
//     stall     steps wait while the file `stall` is there
//     save      a leaving worker saves until the file `disk` is there; the first step of a round
//               marks `stepped`: before it a new worker has nothing to save
//     sever     in round 1, once the file `sever` is there: rank 0's connections break
//     handle    the program handles SIGTERM itself, and marks `handled`
//     fork      each rank forks a child that ends by SIGTERM, and then marks `widowed`
//     listen    rank 0 marks each SIGUSR1 as `heard`
//     differ    rank 1 changes its weights at the start of each round
//     misprint  rank 1 saves other bytes than the others for the same state
//
//     late      without the loop: rank 2 never comes to a barrier. The time of rank 3 begins later
//               than that of the others, which take long to end
//
// and at the first step after the file `throw` is there:
//
//     throw     rank 0 fails, and does not exit before the file `core` is there
//     explain   rank 0 ends with report_fatal()
//     desert    rank 1 exits with code 0
//     disagree  rank 0 calls finish(), while the others reduce
//     die       rank 1 is killed once the others are blocked in a collective, and marks `killed`
//               before; the others mark `released`; each with the time of the shared clock
#include <regroup/regroup.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <poll.h>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "tests/support/connections.h"
#include "tests/support/gpu_holders.h"

namespace {

constexpr std::uint64_t kBatch = 60;  // Divides by any world of up to 6.

std::string folder() {
    const char* value = std::getenv("PROBE_DIR");
    return value != nullptr ? value : ".";
}

void mark(const std::string& name, const regroup::Context& context, const std::string& facts) {
    const std::string path = folder() + "/" + name + "." + std::to_string(context.round) + "." +
                             std::to_string(context.rank);
    const std::string part = path + ".part" + std::to_string(::getpid());
    std::ofstream file(part);
    file << "pid=" << ::getpid() << "\nlocal_rank=" << context.local_rank
         << "\nworld_size=" << context.world_size << "\nholders=" << regroup::testing::holders_now()
         << "\n"
         << facts;
    file.close();
    std::filesystem::rename(part, path);
}

std::string position(std::uint64_t step, std::uint64_t samples) {
    return "step=" + std::to_string(step) + "\nsamples=" + std::to_string(samples) + "\n";
}

volatile std::sig_atomic_t heard = 0;

void beat(std::uint64_t step) {
    const std::string path = folder() + "/step";
    std::ofstream(path + ".part") << step << "\n";
    std::filesystem::rename(path + ".part", path);
}

volatile std::sig_atomic_t handled = 0;

/// A float, so that ranks can reduce it and come to the same decision.
float is_there(const std::string& name) {
    return std::filesystem::exists(folder() + "/" + name) ? 1.0F : 0.0F;
}

std::string moment() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return "ns=" + std::to_string(std::chrono::nanoseconds(now).count()) + "\n";
}

/// Kills rank 1 while the other ranks wait for it in a collective.
void reduce_until_rank_1_dies(regroup::ProcessGroup& group, const regroup::Context& context) {
    std::vector<float> values(std::size_t{1} << 20U);
    if (context.rank == 1) {
        ::poll(nullptr, 0, 50);  // The others are in the collective by now.
        mark("killed", context, moment());
        ::raise(SIGKILL);
    }
    try {
        group.all_reduce(std::span<float>(values), regroup::ReduceOp::sum).wait();
    } catch (const regroup::Error&) {
        mark("released", context, moment());
        throw;
    }
}

/// Forks a child as a data loader does. It inherits all that its parent has set up.
pid_t fork_child() {
    const pid_t child = ::fork();
    if (child == 0) {
        while (true) {
            ::pause();
        }
    }
    return child;
}

bool has_ended_by_sigterm(pid_t child) {
    int status = 0;
    return ::waitpid(child, &status, WNOHANG) == child && WIFSIGNALED(status) &&
           WTERMSIG(status) == SIGTERM;
}

int train(const std::string& argument) {
    const bool may_stall = argument == "stall";
    const bool saves = argument == "save";
    if (argument == "listen" && std::getenv("RANK") == std::string("0")) {
        std::signal(SIGUSR1, [](int) { heard = 1; });
    }
    const bool deserts = argument == "desert";
    const bool throws = argument == "throw" || argument == "explain";
    const bool beats = argument == "beat" || argument == "keep" || throws;
    if (argument == "handle") {
        std::signal(SIGTERM, [](int) { handled = 1; });
    }
    pid_t child = 0;
    regroup::ElasticLoop loop({.snapshot_every = argument == "keep" ? 2U : 0U});
    regroup::Context present;
    std::vector<float> weights(2);  // The sum of the samples, and their number.
    loop.register_state("weights", std::span<float>(weights));
    if (argument == "misprint") {
        loop.register_state(
            "history", [&] { return std::to_string(present.rank == 1 ? 7 : 8); },
            [](std::string_view) {});
    }
    std::uint64_t samples = 0;
    std::uint64_t steps = 0;
    std::uint64_t stepped = 0;  // The last round with a step.
    const regroup::Ending ending = loop.run({
        .on_round =
            [&](const regroup::ElasticRound& round) {
                present = *round.context;
                if (argument == "differ" && present.rank == 1) {
                    weights[1] += 1;
                }
                if (argument == "fork") {
                    child = fork_child();
                }
                mark("up", present,
                     position(round.step, samples) + "child=" + std::to_string(child) + "\n");
                std::cout << "round " << present.round << " from step " << round.step << std::endl;
            },
        .on_step =
            [&](regroup::ElasticStep& step) {
                if (handled != 0) {
                    handled = 0;
                    mark("handled", present, "");
                }
                if (child != 0 && has_ended_by_sigterm(child)) {
                    child = 0;
                    mark("widowed", present, "");
                }
                std::vector<float> over{is_there("finish"), is_there("throw")};
                step.group().all_reduce(std::span<float>(over), regroup::ReduceOp::max).wait();
                if (over[0] > 0) {
                    samples = step.samples_begin();
                    steps = step.number();
                    return step.finish();
                }
                if (beats && present.rank == 0) {
                    beat(step.number());
                }
                if (throws && present.rank == 0 && std::filesystem::exists(folder() + "/throw")) {
                    throw std::runtime_error("no such shard");
                }
                if (heard != 0) {
                    heard = 0;
                    mark("heard", present, "");
                }
                if (deserts && present.rank == 1 && std::filesystem::exists(folder() + "/throw")) {
                    std::_Exit(0);
                }
                if (argument == "disagree" && over[1] > 0) {
                    if (present.rank == 0) {
                        return step.finish();
                    }
                    step.group().all_reduce(std::span<float>(over), regroup::ReduceOp::sum).wait();
                }
                if (argument == "die" && present.round == 1 && over[1] > 0) {
                    reduce_until_rank_1_dies(step.group(), present);
                }
                const regroup::SampleRange range = step.take(kBatch);
                samples = range.last;
                if (may_stall && std::filesystem::exists(folder() + "/stall")) {
                    mark("stalled", present, "");
                }
                while (may_stall && std::filesystem::exists(folder() + "/stall")) {
                    ::poll(nullptr, 0, 5);
                }
                if (argument == "sever" && present.rank == 0 && present.round == 1 &&
                    std::filesystem::exists(folder() + "/sever")) {
                    regroup::testing::sever_connections();
                }
                ::poll(nullptr, 0, 2);
                step.commit([&] {
                    weights[0] += static_cast<float>(range.last - range.first);
                    weights[1] += 1;
                });
                if (saves && std::exchange(stepped, present.round) != present.round) {
                    mark("stepped", present, "");
                }
            },
        .on_leave =
            [&](const regroup::ElasticLeave& leave) {
                if (saves) {
                    mark("saving", present, "");
                }
                while (saves && !std::filesystem::exists(folder() + "/disk")) {
                    ::poll(nullptr, 0, 5);
                }
                mark("left", present,
                     position(leave.step, samples) + "reason=" + leave.reason + "\n");
            },
    });
    if (ending == regroup::Ending::finished) {
        mark("done", present,
             position(steps, samples) + "taken=" + std::to_string(weights[0]) +
                 "\ncommitted=" + std::to_string(weights[1]) + "\n");
    }
    return 0;
}

int wait_in_vain() {
    const regroup::Context context = regroup::Context::from_environment();
    const auto group =
        regroup::ProcessGroup::create("cpu", context, {.timeout = std::chrono::milliseconds(1500)});
    group->barrier().wait();
    if (context.rank == 2) {
        ::poll(nullptr, 0, -1);
    }
    ::poll(nullptr, 0, context.rank == 3 ? 700 : 0);
    // Rank 3 may have ended, and the agent asked this rank to end, before it hears of its own
    // error.
    std::signal(SIGTERM, SIG_IGN);
    try {
        group->barrier().wait();
    } catch (const regroup::Error&) {
        ::poll(nullptr, 0, context.rank == 3 ? 0 : 300);
        throw;
    }
    return 0;
}

}  // namespace

int main(int count, char** values) {
    ::alarm(150);  // The process ends by itself, even if the code under test fails to end it.
    const std::string argument = count > 1 ? values[1] : "";
    try {
        return argument == "late" ? wait_in_vain() : train(argument);
    } catch (const std::exception& error) {
        std::cerr << "elastic_probe: " << error.what() << std::endl;
        if (argument == "explain") {
            regroup::report_fatal(regroup::FatalKind::user_error, "there is no such data set");
        }
        while (argument == "throw" && !std::filesystem::exists(folder() + "/core")) {
            ::poll(nullptr, 0, 5);
        }
        return 1;
    }
}
