// SPDX-License-Identifier: Apache-2.0
//
// sub_groups: groups of some of the ranks.
//
//     regroup run --standalone --nproc-per-node=4 sub_groups
//
// All ranks call `new_group`, members or not. Only its members communicate in the group.

#include <regroup/context.h>
#include <regroup/error.h>
#include <regroup/process_group.h>

#include "device_vector.h"
#include "flags.h"

namespace {

using regroup::ProcessGroup;

// The sum of the members' ranks (in the world), on every member.
float sum_of_ranks(ProcessGroup& group, const regroup::Context& context) {
    example::DeviceVector<float> value(std::vector{static_cast<float>(context.rank)},
                                       group.device());
    group.all_reduce(value.view(), regroup::ReduceOp::sum).wait();
    value.download();
    return value.host()[0];
}

void pair(ProcessGroup& world, const regroup::Context& context) {
    const auto group = world.new_group({0, 1}, "pair");
    if (group->rank() != ProcessGroup::kNotAMember) {
        std::printf("pair: rank %u adds up %g\n", context.rank,
                    double{sum_of_ranks(*group, context)});
        return;
    }
    try {
        (void)sum_of_ranks(*group, context);
    } catch (const regroup::Error& error) {
        std::printf("pair: rank %u is refused: %s\n", context.rank, error.what());
    }
}

// Two groups that share no rank may work at the same time. Each rank is in one of them.
void even_and_odd(ProcessGroup& world, const regroup::Context& context) {
    std::vector<std::uint32_t> even;
    std::vector<std::uint32_t> odd;
    for (std::uint32_t rank = 0; rank < world.world_size(); ++rank) {
        (rank % 2 == 0 ? even : odd).push_back(rank);
    }
    const auto evens = world.new_group(even, "even");
    const auto odds = world.new_group(odd, "odd");
    ProcessGroup& mine = context.rank % 2 == 0 ? *evens : *odds;
    std::printf("%s: rank %u is rank %u of %u, and adds up %g\n",
                context.rank % 2 == 0 ? "even" : "odd", context.rank, mine.rank(),
                mine.world_size(), double{sum_of_ranks(mine, context)});
    // The groups end here. The barrier ensures that all members have finished.
    world.barrier().wait();
}

}  // namespace

int main(int argc, char** argv) {
    std::string backend = "cpu";
    example::Flags flags("sub_groups", "groups of some ranks, and what others get of them.");
    example::add_backend(flags, backend);
    return example::run_main(flags, argc, argv, [&](const regroup::Context& context) {
        example::require_ranks(context, 2);
        const auto world = ProcessGroup::create(backend, context);
        pair(*world, context);
        world->barrier().wait();
        even_and_odd(*world, context);
    });
}
