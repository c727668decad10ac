// SPDX-License-Identifier: Apache-2.0
//
// Nodes with broken parts.
#include <csignal>
#include <cstdint>
#include <fstream>

#include "tests/e2e/gpu_node.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

constexpr const char* kLost = "GPU 1 (0000:5e:00.0) has fallen off the bus; restart this machine";

class RunHealth : public GpuNode {
   protected:
    void tell_lost() const { machine_.tell_nvml("0000:3b:00.0 action 0\n0000:5e:00.0 code 15\n"); }
};

TEST_F(RunHealth, NodeWithHealthyGpusRunsWithoutAWord) {
    auto node = run_with_gpus({}, {"mark=up"});
    EXPECT_THAT(ended(*node), exits(0, Not(HasSubstr("health"))));
}

TEST_F(RunHealth, NodeWithALostGpuRunsNothingAndSaysWhatToDo) {
    tell_lost();
    auto node = run_with_gpus({}, {"mark=up"});
    EXPECT_THAT(ended(*node), exits(76, std::string("this node is not healthy: ") + kLost));
    EXPECT_THAT(marks("up"), SizeIs(0));
}

TEST_F(RunHealth, HealthOffRunsAnyway) {
    tell_lost();
    auto node = run_with_gpus({"--health=off"}, {"mark=up"});
    EXPECT_EQ(node->wait(), 0) << node->output();
}

TEST_F(RunHealth, LostGpuThatIsHiddenFromTheJobDoesNotMatter) {
    tell_lost();
    auto node = run_with_gpus({}, {"mark=up"}, {"CUDA_VISIBLE_DEVICES=0"});
    EXPECT_EQ(node->wait(), 0) << node->output();
}

TEST_F(RunHealth, DriverThatCrashesTheProbeIsOnlyWarnedAbout) {
    machine_.tell_nvml("crash\n");
    auto node = run_with_gpus({}, {"mark=up"});
    EXPECT_THAT(ended(*node), exits(0,
                                    "health warning: this node is checked only in part: the "
                                    "probe was ended by SIGABRT"));
}

TEST_F(RunHealth, LauncherCanBeStoppedWhileTheDriverDoesNotAnswer) {
    machine_.tell_nvml("hang\n");
    auto node = run_with_gpus({}, {"mark=up"});
    // The launcher, the shell in place of which it runs, its agent and the probe.
    ASSERT_TRUE(eventually([&] { return node->family().size() >= 3; })) << node->output();
    node->signal(SIGTERM);
    EXPECT_EQ(node->wait(), 128 + SIGTERM) << node->output();
    EXPECT_TRUE(eventually([&] { return node->family().empty(); }));
}

TEST_F(RunHealth, OthersGoOnWithoutANodeThatIsRefusedBeforeItJoins) {
    const Rendezvous rendezvous;
    tell_lost();
    const Words flags = node(1, "1:2", rendezvous.endpoint());
    Program healthy = run_probe(flags, {"mark=up", "await=finish"});
    ASSERT_THAT(await_marks("up", 1), SizeIs(1)) << healthy.output();
    auto broken = run_with_gpus(node(2, "1:2", rendezvous.endpoint()) + Words{"--grow-after=0"},
                                {"mark=up", "await=finish"});
    EXPECT_EQ(broken->wait(), 76) << broken->output();
    release("finish");
    EXPECT_EQ(healthy.wait(), 0) << healthy.output();
    EXPECT_THAT(marks("up"), SizeIs(1));  // The round did not change for the broken node.
}

TEST_F(RunHealth, NodeWhoseGpuBreaksLeavesAfterTheFailureAndTheOthersGoOn) {
    const Rendezvous rendezvous;
    const Words more{"--max-restarts=3", "--last-call=60", "--grow-after=0"};
    Program healthy =
        run_probe(node(1, "1:2", rendezvous.endpoint()) + more, {"mark=up", "await=finish"});
    auto broken =
        run_with_gpus(node(2, "1:2", rendezvous.endpoint()) + more, {"mark=up", "await=finish"});
    const auto first = await_marks("up", 2);
    ASSERT_THAT(first, SizeIs(2)) << healthy.output() << broken->output();

    tell_lost();
    ASSERT_EQ(first.at(1).at("GROUP_RANK"), "1");
    ::kill(pid_of(first.at(1)), SIGKILL);
    EXPECT_THAT(ended(*broken), exits(76, std::string("this node is not healthy: ") + kLost));

    const auto second = await_marks("up", 1, 2);
    ASSERT_THAT(second, SizeIs(1)) << healthy.output();
    EXPECT_EQ(second.at(0).at("WORLD_SIZE"), "1");
    release("finish");
    EXPECT_THAT(ended(healthy), exits(0, kLost));
}

TEST_F(RunHealth, NodeThatIsStillHealthyAfterAFailureTakesPartAgain) {
    auto node = run_with_gpus({"--max-restarts=1"}, {"restart=0?exit=1", "mark=up"});
    EXPECT_EQ(node->wait(), 0) << node->output();
    EXPECT_THAT(await_marks("up", 1), SizeIs(1));
}

TEST_F(RunHealth, CommandShowsTheGpusAndTheFault) {
    tell_lost();
    auto check = with_gpus({regroup_program(), "health"});
    EXPECT_THAT(ended(*check),
                exits(76, "GPU 0 (0000:3b:00.0) answers\nGPU 1 (0000:5e:00.0) is lost\n",
                      std::string("fault: ") + kLost + " [gpu-lost]\n",
                      "this node may not take part in a job\n"));
}

class RunHealthOfCpus : public EndToEnd {};

TEST_F(RunHealthOfCpus, FullCheckComputesBeforeTheJobRuns) {
    Program node = run_probe({"--health=full"}, {"mark=up"});
    EXPECT_EQ(node.wait(), 0) << node.output();
    EXPECT_THAT(marks("up"), SizeIs(1));
}

TEST_F(RunHealthOfCpus, CommandMeasuresCpusAndMemory) {
    Program check({{regroup_program(), "health", "--full"}, {}, folder()});
    EXPECT_THAT(ended(check),
                exits(0, "matrix products a second each\n", "memory was read and written at ",
                      "this node may take part in a job\n"));
}

class RunHealthClock : public EndToEnd {};

TEST_F(RunHealthClock, NodeWhoseClockDiffersFromTheDaemonsWarnsAndTakesPart) {
    const Rendezvous rendezvous;
    constexpr std::int64_t kBehind = -90'000'000'000;  // In ns.
    const std::string dial = folder() + "/dial";
    std::ofstream(dial, std::ios::binary)
        .write(reinterpret_cast<const char*>(&kBehind), sizeof kBehind);
    const Words flags = node(1, "1:2", rendezvous.endpoint()) + Words{"--last-call=0"};
    Program late = run_probe(flags, {}, {"LD_PRELOAD=" CLOCK_SHIM, "CHAOS_CLOCK=" + dial});
    EXPECT_THAT(ended(late), exits(0, "[clock]"));
    Program right = run_probe(flags, {});
    EXPECT_THAT(ended(right), exits(0, Not(HasSubstr("[clock]"))));
}

}  // namespace
}  // namespace regroup::testing
