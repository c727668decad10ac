// SPDX-License-Identifier: Apache-2.0
//
// A program of the SDK that an MPI launcher starts. It does not use MPI. It prints its rank and a
// sum over all ranks.
#include <regroup/context.h>
#include <regroup/error.h>
#include <regroup/process_group.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>

int main() {
    try {
        const regroup::Context context = regroup::Context::from_environment();
        const auto group = regroup::ProcessGroup::create("cpu", context);
        std::int32_t sum = static_cast<std::int32_t>(context.rank) + 1;
        group->all_reduce(std::span(&sum, 1), regroup::ReduceOp::sum).wait();
        std::printf("rank %u of %u, local rank %u of %u, sum %d\n", context.rank,
                    context.world_size, context.local_rank, context.local_world_size, sum);
        std::fflush(stdout);
        group->barrier().wait();
        return 0;
    } catch (const regroup::Error& error) {
        std::fprintf(stderr, "mpi_job_rank: %s\n", error.what());
        return 1;
    }
}
