// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "agent/placement/gpu_shares.h"
#include "tests/support/matchers.h"
#include "tests/unit/placement_machines.h"

namespace regroup::agent {
namespace {

/// CUDA_VISIBLE_DEVICES of each rank, or only the text of the error.
std::vector<std::string> shares(const GpuShareRequest& request) {
    const auto shares = share_gpus(request);
    return shares ? shares->visible : std::vector<std::string>{shares.error().detail};
}

TEST(GpuSharesTest, RanksGetTheMachinesGpusInOrder) {
    EXPECT_THAT(shares({.rank_count = 4, .gpus_per_rank = 1, .visible = {}, .gpu_count = 4}),
                ElementsAre("0", "1", "2", "3"));
    EXPECT_THAT(shares({.rank_count = 2, .gpus_per_rank = 2, .visible = {}, .gpu_count = 4}),
                ElementsAre("0,1", "2,3"));
}

TEST(GpuSharesTest, InheritedListIsDividedEntryByEntry) {
    for (const std::uint32_t gpu_count : {0U, 8U}) {
        EXPECT_THAT(shares({.rank_count = 2,
                            .gpus_per_rank = 2,
                            .visible = "7, 3,5,1",
                            .gpu_count = gpu_count}),
                    ElementsAre("7,3", "5,1"));
        EXPECT_THAT(shares({.rank_count = 2,
                            .gpus_per_rank = 1,
                            .visible = "GPU-8932f937,MIG-GPU-1/0/0",
                            .gpu_count = gpu_count}),
                    ElementsAre("GPU-8932f937", "MIG-GPU-1/0/0"));
    }
}

TEST(GpuSharesTest, ListEndsWhereCudaEndsIt) {
    for (const char* list : {"0,1,-1,2", "0,1,NoDevFiles", "0,1,,2", "0,1,4,2", "0,1,2x"}) {
        EXPECT_THAT(shares({.rank_count = 3, .gpus_per_rank = 1, .visible = list, .gpu_count = 4}),
                    ElementsAre(AllOf(HasSubstr("3 workers"), HasSubstr("2 GPUs can be seen"),
                                      HasSubstr(list))))
            << list;
    }
}

TEST(GpuSharesTest, MoreRanksThanGpusAreRefusedWithBothNumbers) {
    EXPECT_THAT(shares({.rank_count = 3, .gpus_per_rank = 2, .visible = {}, .gpu_count = 5}),
                ElementsAre("--gpus-per-rank 2: 3 workers of this node need 6 GPUs, and 5 GPUs can "
                            "be seen, enough for 2 workers; give --nproc-per-node to match"));
    EXPECT_THAT(shares({.rank_count = 5, .gpus_per_rank = 0, .visible = "2,3", .gpu_count = 4}),
                ElementsAre("--gpus-per-rank auto: 5 workers of this node need 5 GPUs, and 2 GPUs "
                            "can be seen (CUDA_VISIBLE_DEVICES='2,3'), enough for 2 workers; give "
                            "--nproc-per-node to match"));
    EXPECT_EQ(share_gpus({.rank_count = 2, .gpus_per_rank = 1, .visible = "0", .gpu_count = 1})
                  .error()
                  .code,
              Errc::invalid_argument);
}

TEST(GpuSharesTest, MachineWithoutAGpuGetsItsOwnMessage) {
    EXPECT_THAT(shares({.rank_count = 1, .gpus_per_rank = 1, .visible = {}, .gpu_count = 0}),
                ElementsAre("--gpus-per-rank 1: this node has no NVIDIA GPU that this process may "
                            "use"));
    EXPECT_THAT(shares({.rank_count = 1, .gpus_per_rank = 1, .visible = "", .gpu_count = 8}),
                ElementsAre(HasSubstr("may use (CUDA_VISIBLE_DEVICES='')")));
}

TEST(GpuSharesTest, AutoDividesEvenlyAndNotesTheRemainder) {
    const auto shared =
        share_gpus({.rank_count = 3, .gpus_per_rank = 0, .visible = {}, .gpu_count = 8});
    ASSERT_TRUE(shared);
    EXPECT_EQ(shared->gpus_per_rank, 2U);
    EXPECT_THAT(shared->visible, ElementsAre("0,1", "2,3", "4,5"));
    EXPECT_EQ(shared->note, "--gpus-per-rank auto: of 8 GPUs, 2 are not used by any worker");
    const auto all =
        share_gpus({.rank_count = 4, .gpus_per_rank = 0, .visible = {}, .gpu_count = 8});
    ASSERT_TRUE(all);
    EXPECT_THAT(all->note, IsEmpty());
}

TEST(GpuSharesTest, WorkerIsBoundNextToTheFirstOfItsGpus) {
    PlacementRequest request;
    request.rank_count = 2;
    request.numa_binding = NumaBinding::node;
    request.gpus_per_rank = 2;
    const auto placement =
        plan_placement(request, machine("numa:2 core:2 pu:1"), gpus_on({1, 0, 0, 1}));
    EXPECT_THAT(lists(placement), ElementsAre("2-3", "0-1"));
    EXPECT_EQ(placement->ranks[1].gpu, "2 (0000:12:00.0)");
}

}  // namespace
}  // namespace regroup::agent
