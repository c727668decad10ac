// SPDX-License-Identifier: Apache-2.0
//
// Elastic jobs in which the state of the optimizer is divided among the ranks.
#include <csignal>
#include <memory>

#include "tests/e2e/end_to_end.h"

namespace regroup::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

using Marks = std::map<std::uint32_t, Mark>;

class RunSharded : public EndToEnd {
   protected:
    [[nodiscard]] std::unique_ptr<Program> start_node(unsigned number, const std::string& nodes,
                                                      const std::string& endpoint,
                                                      const Words& arguments = {}) const {
        return std::make_unique<Program>(
            ProgramSpec{Words{regroup_program(), "run"} + node(number, nodes, endpoint) +
                            Words{"--nproc-per-node=2", "--shutdown-timeout=30", "--last-call=30",
                                  SHARDED_PROBE_PROGRAM} +
                            arguments,
                        {"PROBE_DIR=" + folder()},
                        folder()});
    }
    [[nodiscard]] Program start_one(const Words& arguments = {}) const {
        return run(
            Words{"--standalone", "--nproc-per-node=4", "--max-restarts=9", SHARDED_PROBE_PROGRAM} +
            arguments);
    }
    /// Checks that the weights have the bits of a training in one process.
    void expect_undisturbed_result(std::size_t ranks) const {
        const Marks done = last_marks("done");
        ASSERT_THAT(done, SizeIs(ranks));
        for (const auto& [rank, mark] : done) {
            EXPECT_EQ(mark.at("same"), "yes") << "rank " << rank << ", step " << mark.at("step");
        }
    }
};

TEST_F(RunSharded, ReplicasReplaceTheShardOfALostWorker) {
    Program job = start_one({"replicate"});
    const Marks first = await_marks("up", 4);
    ASSERT_THAT(first, SizeIs(4)) << job.output();
    ASSERT_THAT(await_marks("later", 4), SizeIs(4)) << job.output();
    ::kill(pid_of(first.at(2)), SIGKILL);
    const Marks second = await_marks("up", 4, 2);
    ASSERT_THAT(second, SizeIs(4)) << job.output();
    EXPECT_EQ(pid_of(first.at(1)), pid_of(second.at(1)));
    release("finish");
    EXPECT_EQ(job.wait(), 0) << job.output();
    expect_undisturbed_result(4);
}

TEST_F(RunSharded, ReplicasReplaceTheShardsOfALostNode) {
    const Rendezvous rendezvous;
    auto stays = start_node(1, "1:2", rendezvous.endpoint(), {"replicate"});
    auto lost = start_node(2, "1:2", rendezvous.endpoint(), {"replicate"});
    ASSERT_THAT(await_marks("up", 4), SizeIs(4)) << stays->output();
    for (const pid_t pid : lost->family()) {
        ::kill(pid, SIGKILL);
    }
    ASSERT_THAT(await_marks("up", 2, 2), SizeIs(2)) << stays->output();
    release("finish");
    EXPECT_EQ(stays->wait(), 0) << stays->output();
    expect_undisturbed_result(2);
}

TEST_F(RunSharded, NodeThatLeavesHandsItsShardsOverAndOneThatJoinsGetsSome) {
    const Rendezvous rendezvous;
    std::vector<std::unique_ptr<Program>> nodes;
    for (unsigned number = 1; number <= 3; ++number) {
        nodes.push_back(start_node(number, "1:3", rendezvous.endpoint()));
    }
    ASSERT_THAT(await_marks("up", 6), SizeIs(6)) << nodes[0]->output();
    nodes[1]->signal(SIGTERM);
    EXPECT_EQ(nodes[1]->wait(), 75) << nodes[1]->output();
    ASSERT_THAT(await_marks("up", 4, 2), SizeIs(4)) << nodes[0]->output();
    nodes.push_back(start_node(4, "1:3", rendezvous.endpoint()));
    ASSERT_THAT(await_marks("up", 6, 3), SizeIs(6)) << nodes[0]->output();
    release("finish");
    for (const std::size_t at : {0U, 2U, 3U}) {
        EXPECT_EQ(nodes[at]->wait(), 0) << nodes[at]->output();
    }
    expect_undisturbed_result(6);
}

TEST_F(RunSharded, JobBeginsAgainFromTheCheckpointIfAShardIsLost) {
    Program job = start_one();
    const Marks first = await_marks("up", 4);
    ASSERT_THAT(first, SizeIs(4)) << job.output();
    ASSERT_THAT(await_marks("later", 4), SizeIs(4)) << job.output();
    ::kill(pid_of(first.at(1)), SIGKILL);
    const Marks again = await_marks("up", 4, 2);
    ASSERT_THAT(again, SizeIs(4)) << job.output();
    for (const auto& [rank, mark] : again) {
        EXPECT_NE(pid_of(mark), pid_of(first.at(rank))) << "rank " << rank;
        EXPECT_EQ(mark.at("step"), "20") << "rank " << rank;
    }
    release("finish");
    EXPECT_EQ(job.wait(), 0) << job.output();
    EXPECT_THAT(job.output(), HasSubstr("rank 1 of the 4 ranks"));
    expect_undisturbed_result(4);
}

}  // namespace
}  // namespace regroup::testing
