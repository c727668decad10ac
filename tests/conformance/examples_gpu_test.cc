// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "tests/conformance/examples_harness.h"
#include "tests/support/matchers.h"

namespace regroup {
namespace {

using testing::Outcome;
using testing::Words;

class GpuExamples : public testing::Examples {
   protected:
    [[nodiscard]] Outcome launch_on_gpus(std::uint32_t rank_count, const std::string& name,
                                         Words arguments = {}) const {
        arguments.insert(arguments.end(), {"--backend", "nccl"});
        return launch(rank_count, name, arguments);
    }
};

TEST_F(GpuExamples, CollectivesShowTheSameOnBothBackEnds) {
    const Outcome on_gpus = launch_on_gpus(3, "communication collectives");
    EXPECT_EQ(on_gpus.exit_code, 0) << on_gpus.output;
    const Outcome on_cpus = launch(3, "communication collectives");
    EXPECT_EQ(on_gpus.lines_of_rank, on_cpus.lines_of_rank);
    EXPECT_THAT(on_gpus.lines_of_rank.at(0),
                Contains("all_reduce sum         [6 -6] [6 -6] [6 -6]"));
}

TEST_F(GpuExamples, PointToPointMessagesArrive) {
    const Outcome outcome = launch_on_gpus(3, "communication point_to_point");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_EQ(outcome.after(1, "blocking: rank 1 has "), "1");
    EXPECT_EQ(outcome.after(1, "immediate: rank 1 has "), "2, and computed 7.4855 meanwhile");
    EXPECT_EQ(outcome.after(1, "tags: rank 1 has "), "labels 7 8 9 and weights 0.25 0.5");
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
        EXPECT_EQ(outcome.after(rank, "ring: rank " + std::to_string(rank) +
                                          " has seen ranks that add up to "),
                  "3");
    }
}

TEST_F(GpuExamples, SubGroupsServeTheirMembersAlone) {
    const Outcome outcome = launch_on_gpus(4, "communication sub_groups");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_EQ(outcome.after(0, "pair: "), "rank 0 adds up 1");
    EXPECT_THAT(outcome.after(3, "pair: rank 3 is refused: "), HasSubstr("ranks 0, 1"));
    EXPECT_EQ(outcome.after(3, "odd: "), "rank 3 is rank 1 of 2, and adds up 4");
}

TEST_F(GpuExamples, ParameterServersAreSynchronousOnly) {
    const Outcome outcome = launch_on_gpus(4, "communication parameter_server", {"--servers", "2"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_EQ(outcome.after(2, "largest difference from plain SGD: "), "0");
    const Outcome refused =
        launch_on_gpus(2, "communication parameter_server", {"--mode", "async"});
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.output, HasSubstr("--mode async serves workers as they come"));
}

TEST_F(GpuExamples, PartitionedTrainingLearns) {
    const Outcome outcome = launch_on_gpus(2, "training partitioner");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_LT(outcome.number_after(1, "Rank 1, epoch 9: "), 0.005);
}

TEST_F(GpuExamples, PipelineIsTheUnsplitModelToTheBit) {
    for (const char* const micro_batches : {"4", "1"}) {
        const Outcome outcome = launch_on_gpus(2, "pipeline", {"--micro-batches", micro_batches});
        EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
        EXPECT_EQ(outcome.after(0, "largest difference from the unsplit model: "), "0");
    }
}

}  // namespace
}  // namespace regroup
