// SPDX-License-Identifier: Apache-2.0
//
// spawn: a program that starts its own ranks.
//
//     spawn --nprocs 4
//
// regroup::spawn runs one function in several processes, each with its index as the first argument.
// The processes form a world: inside the function, Context and ProcessGroup work as under a
// launcher.

#include <regroup/context.h>
#include <regroup/process_group.h>
#include <regroup/spawn.h>

#include <csignal>
#include <unistd.h>

#include "flags.h"

namespace {

struct Options {
    std::int64_t nprocs = 2;
    std::int64_t throw_in = -1;
    std::int64_t kill_in = -1;
};

// Runs in every process. fork() has copied the memory of the parent, so `options` is there.
void train(std::uint32_t index, const Options& options) {
    const regroup::Context context = regroup::Context::from_environment();
    const auto group = regroup::ProcessGroup::create("cpu", context);

    std::vector<float> value{static_cast<float>(index)};
    group->all_reduce(std::span(value), regroup::ReduceOp::sum).wait();
    std::printf("process %u is rank %u of %u; the ranks add up to %g\n", index, context.rank,
                context.world_size, double{value[0]});

    if (index == options.throw_in) {
        throw std::runtime_error("no such layer: 'attention.9'");
    }
    if (index == options.kill_in) {
        ::kill(::getpid(), SIGKILL);
    }
    // If one process fails, this throws in all others. spawn reports the process that failed by
    // itself.
    group->barrier().wait();
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    example::Flags flags("spawn", "starts processes of one function and adds up their ranks.");
    flags.add("--nprocs", options.nprocs, {1, 1024}, "processes to start");
    flags.add("--throw-in", options.throw_in, {-1, 1023}, "the process that throws an exception");
    flags.add("--kill-in", options.kill_in, {-1, 1023}, "the process that is killed");
    return example::run_main(flags, argc, argv, [&](const regroup::Context&) {
        regroup::spawn(train, std::tuple(options), static_cast<std::uint32_t>(options.nprocs));
        std::puts("all processes have succeeded");
    });
}
