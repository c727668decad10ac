// SPDX-License-Identifier: Apache-2.0
//
// The successor of a worker gets its place when the GPU memory of the dead is free.
#include <csignal>

#include "tests/e2e/gpu_node.h"
#include "tests/support/gpu_holders.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

// The agent has asked the driver again and again, and the answer was that the dead hold memory.
constexpr std::size_t kOften = 6;

class RunGpuMemory : public GpuNode {
   protected:
    [[nodiscard]] bool is_waited_for() const {
        return eventually([this] { return machine_.asked() >= kOften; });
    }
    void free_memory() const { show_holder(machine_.holders(), 0); }
};

const Words kFlags{"--standalone", "--health=off", "--max-restarts=1"};
const Words kLong{"REGROUP_GPU_MEMORY_TIMEOUT=1000"};

TEST_F(RunGpuMemory, SuccessorStartsWhenTheDriverHasFreedTheMemoryOfTheDead) {
    auto node =
        run_with_gpus(kFlags, {"restart=0?hold_gpu", "restart=0?exit=3", "mark=second"}, kLong);
    ASSERT_TRUE(is_waited_for()) << node->output();
    EXPECT_THAT(marks("second"), SizeIs(0));
    free_memory();
    EXPECT_EQ(node->wait(), 0) << node->output();
    EXPECT_EQ(mark("second", 2).at("holders"), "");
}

TEST_F(RunGpuMemory, LostWorkerOfAnElasticJobIsReplacedWhenItsMemoryIsFree) {
    auto node = with_gpus(Words{regroup_program(), "run", "--nproc-per-node=2"} + kFlags +
                              Words{elastic_probe_program()},
                          kLong);
    const auto first = await_marks("up", 2);
    ASSERT_THAT(first, SizeIs(2)) << node->output();
    show_holder(machine_.holders(), pid_of(first.at(1)));
    ::kill(pid_of(first.at(1)), SIGKILL);
    ASSERT_TRUE(is_waited_for()) << node->output();
    EXPECT_THAT(last_marks("up"), SizeIs(2));
    EXPECT_EQ(last_marks("up").at(1).at("pid"), first.at(1).at("pid"));
    free_memory();
    const auto second = await_marks("up", 2, 2);
    ASSERT_THAT(second, SizeIs(2)) << node->output();
    EXPECT_EQ(pid_of(second.at(0)), pid_of(first.at(0)));
    EXPECT_EQ(second.at(1).at("holders"), "");
    release("finish");
    EXPECT_EQ(node->wait(), 0) << node->output();
}

TEST_F(RunGpuMemory, SuccessorWaitsForMemoryThatIsNeverFreedNoLongerThanTheLimit) {
    auto node = run_with_gpus(
        kFlags, {"restart=0?hold_gpu", "restart=0?mark=first", "restart=0?exit=3", "mark=second"},
        {"REGROUP_GPU_MEMORY_TIMEOUT=1"});
    EXPECT_THAT(ended(*node), exits(0, "REGROUP_GPU_MEMORY_TIMEOUT"));
    EXPECT_EQ(mark("second", 2).at("holders"), mark("first", 1).at("pid"));
}

// The driver keeps the memory of a process for as long as another has its device files open.
TEST_F(RunGpuMemory, ChildWithASessionAndTheDevicesOfTheDeadIsEndedFirst) {
    auto node = run_with_gpus(kFlags,
                              {"restart=0?attach", "restart=0?background=session",
                               "restart=0?hold_gpu", "restart=0?raise=9", "mark=second"},
                              kLong);
    EXPECT_EQ(node->wait(), 0) << node->output();
    EXPECT_EQ(mark("second", 2).at("holders"), "");
}

TEST_F(RunGpuMemory, JobThatSeesNoGpuDoesNotAskTheDriver) {
    auto node = run_with_gpus(kFlags, {"restart=0?hold_gpu", "restart=0?exit=3", "mark=second"},
                              kLong + Words{"CUDA_VISIBLE_DEVICES="});
    EXPECT_EQ(node->wait(), 0) << node->output();
    EXPECT_THAT(marks("second"), SizeIs(1));
    EXPECT_EQ(machine_.asked(), 0U);
}

}  // namespace
}  // namespace regroup::testing
