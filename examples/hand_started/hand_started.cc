// SPDX-License-Identifier: Apache-2.0
//
// hand_started: a program that needs no launcher. Its processes meet through four variables,
//
//     RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 hand_started &
//     RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 hand_started
//
// Without these variables, the program is a world of one. It also runs under a launcher, which sets
// them.

#include <regroup/context.h>
#include <regroup/process_group.h>

#include <chrono>

#include "flags.h"

namespace {

void run(const regroup::Context& context, std::int64_t timeout_s) {
    const auto group =
        regroup::ProcessGroup::create("cpu", context, {.timeout = std::chrono::seconds(timeout_s)});

    std::vector<float> value{static_cast<float>(context.rank + 1)};
    group->all_reduce(std::span(value), regroup::ReduceOp::sum).wait();

    const std::string master = context.world_size == 1 ? "alone"
                                                       : "master " + context.master_addr + ":" +
                                                             std::to_string(context.master_port);
    std::printf("rank %u of %u, %s: 1 + ... + %u = %g\n", context.rank, context.world_size,
                master.c_str(), context.world_size, double{value[0]});
}

}  // namespace

int main(int argc, char** argv) {
    std::int64_t timeout_s = 300;
    example::Flags flags("hand_started",
                         "meets the other ranks through RANK, WORLD_SIZE, MASTER_ADDR and\n"
                         "MASTER_PORT, or is alone if none of them is set, and adds up the ranks.");
    flags.add("--timeout-s", timeout_s, {1, 86'400}, "seconds to wait for the others");
    return example::run_main(flags, argc, argv, [&](regroup::Context context) {
        context.store_timeout = std::chrono::seconds(timeout_s);
        run(context, timeout_s);
    });
}
