// SPDX-License-Identifier: Apache-2.0
//
// Plain loops that ask in each step whether to stop (stop_requested), under the launcher.
#include <csignal>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "tests/e2e/end_to_end.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

using Marks = std::map<std::uint32_t, Mark>;

class RunStop : public EndToEnd {
   protected:
    [[nodiscard]] Program start_one(const Words& arguments = {}, const Words& flags = {}) const {
        return run(Words{"--standalone", "--nproc-per-node=2"} + flags + Words{STOP_PROBE_PROGRAM} +
                   arguments);
    }
    [[nodiscard]] std::unique_ptr<Program> start_node(unsigned number,
                                                      const Words& flags = {
                                                          "--last-call=30"}) const {
        return start_run(node(number, "1:2", rendezvous_.endpoint()) + Words{"--nproc-per-node=2"} +
                         flags + Words{STOP_PROBE_PROGRAM});
    }
    /// The step at which all ranks of the round stopped, with the state saved; 0 if they have not.
    [[nodiscard]] std::uint64_t await_stop(std::size_t ranks, std::uint64_t round) const {
        const Marks stopped = await_marks("stopped", ranks, round);
        if (stopped.size() != ranks) {
            return 0;
        }
        const std::string& step = stopped.begin()->second.at("step");
        for (const auto& [rank, mark] : stopped) {
            EXPECT_EQ(mark.at("step"), step) << "rank " << rank;
            EXPECT_EQ(mark.at("state"), step) << "rank " << rank;
            EXPECT_EQ(mark.at("saved"), "yes") << "rank " << rank;
        }
        return std::stoull(step);
    }
    /// The ranks of the round begin with the state of the step.
    void expect_begun(std::size_t ranks, std::uint64_t round, std::uint64_t step) const {
        const Marks up = await_marks("up", ranks, round);
        ASSERT_THAT(up, SizeIs(ranks));
        for (const auto& [rank, mark] : up) {
            EXPECT_EQ(mark.at("loaded"), std::to_string(step)) << "rank " << rank;
        }
    }

    Rendezvous rendezvous_;
};

TEST_F(RunStop, SigtermToOneLauncherStopsAllRanksAndTheOthersGoOn) {
    const auto stays = start_node(1);
    const auto leaves = start_node(2);
    ASSERT_THAT(await_marks("trains", 4), SizeIs(4)) << stays->output() << leaves->output();
    leaves->signal(SIGTERM);
    EXPECT_EQ(leaves->wait(), 75) << leaves->output();
    const std::uint64_t step = await_stop(4, 1);
    ASSERT_GT(step, 0) << stays->output() << leaves->output();
    expect_begun(2, 2, step);
    release("finish");
    EXPECT_EQ(stays->wait(), 0) << stays->output();
    EXPECT_THAT(leaves->output(), HasSubstr("drained: stopped by SIGTERM"));
    EXPECT_THAT(last_marks("done"), SizeIs(2));
}

// As a scheduler that ends a job.
TEST_F(RunStop, SigtermToAllLaunchersStopsAllRanksAtTheSameStep) {
    const auto first = start_node(1);
    const auto second = start_node(2);
    ASSERT_THAT(await_marks("trains", 4), SizeIs(4)) << first->output() << second->output();
    first->signal(SIGTERM);
    second->signal(SIGTERM);
    EXPECT_EQ(first->wait(), 75) << first->output();
    EXPECT_EQ(second->wait(), 75) << second->output();
    EXPECT_GT(await_stop(4, 1), 0) << first->output() << second->output();
}

// As Slurm with SignalChildrenProcesses, or systemd: workers and launcher in any order.
TEST_F(RunStop, SigtermToAllProcessesOfANodeDrainsIt) {
    Program job = start_one();
    const Marks up = await_marks("trains", 2);
    ASSERT_THAT(up, SizeIs(2)) << job.output();
    ::kill(pid_of(up.at(0)), SIGTERM);
    ::kill(pid_of(up.at(1)), SIGTERM);
    job.signal(SIGTERM);
    EXPECT_EQ(job.wait(), 75) << job.output();
    EXPECT_GT(await_stop(2, 1), 0) << job.output();
}

TEST_F(RunStop, DrainedNodeLeavesAtAnAgreedStep) {
    const auto stays = start_node(1);
    const auto leaves = start_node(2);
    ASSERT_THAT(await_marks("trains", 4), SizeIs(4)) << stays->output() << leaves->output();
    Program drain({{regroup_program(), "drain", "--wait", "--endpoint=" + rendezvous_.endpoint(),
                    "127.0.0.3"},
                   {},
                   folder()});
    EXPECT_EQ(drain.wait(), 0) << drain.output();
    EXPECT_EQ(leaves->wait(), 75) << leaves->output();
    const std::uint64_t step = await_stop(4, 1);
    ASSERT_GT(step, 0) << stays->output() << leaves->output();
    expect_begun(2, 2, step);
    release("finish");
    EXPECT_EQ(stays->wait(), 0) << stays->output();
}

TEST_F(RunStop, NewNodeJoinsAtAnAgreedStep) {
    const Words flags{"--last-call=0", "--grow-after=0"};
    const auto first = start_node(1, flags);
    ASSERT_THAT(await_marks("trains", 2), SizeIs(2)) << first->output();
    const auto second = start_node(2, flags);
    const std::uint64_t step = await_stop(2, 1);
    ASSERT_GT(step, 0) << first->output() << second->output();
    expect_begun(4, 2, step);
    release("finish");
    EXPECT_EQ(first->wait(), 0) << first->output();
    EXPECT_EQ(second->wait(), 0) << second->output();
}

TEST_F(RunStop, CtrlCStopsAllRanksAndTheJobIsToBeStartedAgain) {
    Program job = start_one();
    ASSERT_THAT(await_marks("trains", 2), SizeIs(2)) << job.output();
    job.signal(SIGINT);
    EXPECT_EQ(job.wait(), 75) << job.output();
    EXPECT_GT(await_stop(2, 1), 0) << job.output();
    EXPECT_THAT(job.output(), HasSubstr("the workers save at the next step boundary and leave"));
    EXPECT_THAT(job.family(), IsEmpty());
}

TEST_F(RunStop, ProgramWithAHandlerOfItsOwnIsAskedToo) {
    Program job = start_one({"handle"});
    ASSERT_THAT(await_marks("trains", 2), SizeIs(2)) << job.output();
    job.signal(SIGTERM);
    EXPECT_EQ(job.wait(), 75) << job.output();
    EXPECT_GT(await_stop(2, 1), 0) << job.output();
}

TEST_F(RunStop, SigtermToOneWorkerStopsAllAndTheyBeginAgain) {
    release("slow");
    const auto first = start_node(1);
    const auto second = start_node(2);
    const Marks up = await_marks("trains", 4);
    ASSERT_THAT(up, SizeIs(4)) << first->output() << second->output();
    ::kill(pid_of(up.at(2)), SIGTERM);
    // The first ranks have ended; nobody ends the others while they save.
    ASSERT_TRUE(eventually([&] { return marks("stopped")[1].size() == 2; })) << first->output();
    const auto has_heard = [](const Program& node) {
        return node.output().find("stopped with the other ranks") != std::string::npos;
    };
    ASSERT_TRUE(eventually([&] { return has_heard(*first) && has_heard(*second); }))
        << first->output() << second->output();
    release("disk");
    const std::uint64_t step = await_stop(4, 1);
    ASSERT_GT(step, 0) << first->output() << second->output();
    expect_begun(4, 2, step);
    release("finish");
    EXPECT_EQ(first->wait(), 0) << first->output();
    EXPECT_EQ(second->wait(), 0) << second->output();
}

TEST_F(RunStop, RanksOfAFailedRoundEndAtOnce) {
    Program job = start_one({}, {"--max-restarts=1", "--shutdown-timeout=3600"});
    const Marks up = await_marks("trains", 2);
    ASSERT_THAT(up, SizeIs(2)) << job.output();
    ::kill(pid_of(up.at(1)), SIGKILL);
    ASSERT_THAT(await_marks("trains", 2, 2), SizeIs(2)) << job.output();
    EXPECT_THAT(marks("stopped"), IsEmpty());
    release("finish");
    EXPECT_EQ(job.wait(), 0) << job.output();
}

TEST_F(RunStop, SecondSignalEndsWorkersThatStillSave) {
    release("slow");
    Program job = start_one({}, {"--shutdown-timeout=3600"});
    ASSERT_THAT(await_marks("trains", 2), SizeIs(2)) << job.output();
    job.signal(SIGTERM);
    ASSERT_TRUE(eventually([&] { return marks("stopped")[1].size() == 1; })) << job.output();
    EXPECT_TRUE(eventually([&] {
        job.signal(SIGTERM);
        return !job.running();
    })) << job.output();
    EXPECT_EQ(job.wait(), 128 + SIGTERM) << job.output();
    EXPECT_THAT(job.family(), IsEmpty());
}

}  // namespace
}  // namespace regroup::testing
