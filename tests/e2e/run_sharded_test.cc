// SPDX-License-Identifier: Apache-2.0
//
// Elastic jobs in which the state of the optimizer is divided among the ranks.
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>

#include "tests/e2e/end_to_end.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

using Marks = std::map<std::uint32_t, Mark>;

class RunSharded : public EndToEnd {
   protected:
    [[nodiscard]] std::unique_ptr<Program> start_node(unsigned number, const std::string& nodes,
                                                      const std::string& endpoint,
                                                      const Words& arguments = {}) const {
        return start_run(node(number, nodes, endpoint) +
                         Words{"--nproc-per-node=2", "--shutdown-timeout=30", "--last-call=30",
                               SHARDED_PROBE_PROGRAM} +
                         arguments);
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
    EXPECT_THAT(ended(job), exits(0, "rank 1 of the 4 ranks"));
    expect_undisturbed_result(4);
}

// The loss of the two ranks is the only one that is charged.
TEST_F(RunSharded, LossOfBothReplicasCostsOneRestart) {
    Program job = run({"--standalone", "--nproc-per-node=4", "--max-restarts=1",
                       SHARDED_PROBE_PROGRAM, "replicate"});
    const Marks first = await_marks("up", 4);
    ASSERT_THAT(first, SizeIs(4)) << job.output();
    ASSERT_THAT(await_marks("later", 4), SizeIs(4)) << job.output();
    ::kill(pid_of(first.at(1)), SIGKILL);
    ::kill(pid_of(first.at(3)), SIGKILL);
    const Marks again = await_marks("up", 4, 3);
    ASSERT_THAT(again, SizeIs(4)) << job.output();
    for (const auto& [rank, mark] : again) {
        EXPECT_EQ(mark.at("step"), "20") << "rank " << rank;
    }
    release("finish");
    EXPECT_THAT(ended(job), exits(0, "ranks 1 and 3 of the 4 ranks"));
    expect_undisturbed_result(4);
}

// ---- The program of docs/elastic.md.

class RunShardedExample : public EndToEnd {
   protected:
    [[nodiscard]] Program start() const {
        return run(Words{"--standalone", "--nproc-per-node=4", "--max-restarts=3",
                         "--shutdown-timeout=30", ELASTIC_SHARDED_PROGRAM});
    }
    /// The pid that `rank` has printed at the begin of its first round.
    static pid_t pid_of_rank(const Program& job, int rank) {
        const std::string text = job.output();
        const std::string words = "rank " + std::to_string(rank) + " of 4, pid ";
        const std::size_t at = text.find(words);
        return at == text.npos ? -1 : std::stoi(text.substr(at + words.size()));
    }
    [[nodiscard]] bool await_checkpoint() const {
        return eventually([this] { return std::filesystem::exists(folder() + "/table.regroup"); });
    }
    /// The last lines of the ranks.
    static std::string ending_of(const Program& job) {
        const std::string text = job.output();
        const std::size_t at = text.find("finished after");
        return at == text.npos ? "" : text.substr(at, text.find('\n', at) - at);
    }
    /// Of a run that nothing disturbs.
    static const std::string& undisturbed_ending() {
        static const std::string ending = [] {
            const TemporaryDirectory elsewhere;
            Program alone({{ELASTIC_SHARDED_PROGRAM}, {}, elsewhere.path()});
            EXPECT_EQ(alone.wait(), 0) << alone.output();
            return ending_of(alone);
        }();
        return ending;
    }
};

TEST_F(RunShardedExample, LostRankChangesNothing) {
    Program job = start();
    ASSERT_TRUE(await_checkpoint()) << job.output();
    ASSERT_GT(pid_of_rank(job, 1), 0) << job.output();
    ::kill(pid_of_rank(job, 1), SIGKILL);
    EXPECT_EQ(job.wait(), 0) << job.output();
    EXPECT_EQ(ending_of(job), undisturbed_ending());
    EXPECT_NE(ending_of(job), "");
}

TEST_F(RunShardedExample, LossOfBothRanksOfAPartEndsInARetry) {
    Program job = start();
    ASSERT_TRUE(await_checkpoint()) << job.output();
    ASSERT_GT(pid_of_rank(job, 3), 0) << job.output();
    std::filesystem::remove(folder() + "/table.regroup");  // It may hold all that the ranks hold.
    for (const int rank : {1, 3}) {                        // Half the world apart.
        ::kill(pid_of_rank(job, rank), SIGKILL);
    }
    EXPECT_THAT(ended(job), exits(0, "fatal (to be tried again)"));
    EXPECT_EQ(ending_of(job), undisturbed_ending()) << job.output();
}

TEST_F(RunShardedExample, DrainedJobGoesOnWhereItLeft) {
    {
        Program job = start();
        ASSERT_TRUE(job.prints("of 4, pid")) << job.output();
        ASSERT_TRUE(await_checkpoint()) << job.output();
        job.signal(SIGTERM);
        EXPECT_EQ(job.wait(), 75) << job.output();
        EXPECT_EQ(ending_of(job), "");
    }
    Program job = start();
    EXPECT_THAT(ended(job), exits(0, Not(HasSubstr("from step 0\n"))));
    EXPECT_EQ(ending_of(job), undisturbed_ending());
}

}  // namespace
}  // namespace regroup::testing
