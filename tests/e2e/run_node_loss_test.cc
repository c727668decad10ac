// SPDX-License-Identifier: Apache-2.0
//
// Nodes that die, freeze, leave and come back. A node here is an agent with its own address.
#include <csignal>
#include <memory>

#include "tests/e2e/end_to_end.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

// Two workers on each node, which train until they are told to finish.
class RunNodeLoss : public EndToEnd {
   protected:
    [[nodiscard]] std::unique_ptr<Program> start(const Words& flags) const {
        return start_run(flags + Words{"--nproc-per-node=2", "--grow-after=0",
                                       "--shutdown-timeout=10", probe_program(), "mark=up",
                                       "await=finish"});
    }
    [[nodiscard]] std::unique_ptr<Program> start(unsigned number, const std::string& nodes) const {
        return start(node(number, nodes, rendezvous_.endpoint()));
    }

    static void expect_world(const std::map<std::uint32_t, Mark>& up, const std::string& nodes) {
        for (const auto& [rank, mark] : up) {
            EXPECT_EQ(mark.at("WORLD_SIZE"), std::to_string(up.size()));
            EXPECT_EQ(mark.at("GROUP_WORLD_SIZE"), nodes);
            EXPECT_EQ(mark.at("GROUP_RANK"), rank < 2 ? "0" : "1");
            // A change of membership costs no restart.
            EXPECT_EQ(mark.at("TORCHELASTIC_RESTART_COUNT"), "0");
        }
    }
    // The agent (parent process) of the worker of that rank.
    static pid_t parent_of(const std::map<std::uint32_t, Mark>& up, std::uint32_t rank,
                           const Program& agent) {
        const auto found = up.find(rank);
        const std::vector<pid_t> family = agent.family();
        const pid_t pid = found == up.end() ? -1 : pid_of(found->second);
        return std::count(family.begin(), family.end(), pid) > 0 ? agent.pid() : -1;
    }

    Rendezvous rendezvous_;
};

/// Which of the two nodes is lost: the one that has group rank 0, and the store, or the other.
class RunNodeLossOfEither : public RunNodeLoss, public ::testing::WithParamInterface<unsigned> {};

TEST_P(RunNodeLossOfEither, SurvivorGoesOnAndTheLostNodeComesBackToItsRank) {
    const unsigned lost_number = GetParam();
    const unsigned other_number = 3 - lost_number;
    auto survivor = start(other_number, "1:2");
    auto lost = start(lost_number, "1:2");
    const auto first = await_marks("up", 4);
    ASSERT_THAT(first, SizeIs(4)) << survivor->output() << lost->output();
    expect_world(first, "2");

    lost->signal(SIGKILL);
    const auto second = await_marks("up", 2, 2);
    ASSERT_THAT(second, SizeIs(2)) << survivor->output();
    expect_world(second, "1");
    EXPECT_THAT(survivor->output(), HasSubstr("node 127.0.0." + std::to_string(lost_number + 1)));
    EXPECT_EQ(lost->wait(), 128 + SIGKILL);
    EXPECT_TRUE(eventually([&] { return lost->family().empty(); }));

    auto returned = start(lost_number, "1:2");
    const auto third = await_marks("up", 4, 3);
    ASSERT_THAT(third, SizeIs(4)) << survivor->output() << returned->output();
    expect_world(third, "2");
    const std::uint32_t its_rank = lost_number == 1 ? 0 : 2;
    EXPECT_EQ(parent_of(third, its_rank, *returned), returned->pid());
    EXPECT_EQ(parent_of(third, 2 - its_rank, *survivor), survivor->pid());
    for (const auto& [rank, mark] : second) {
        EXPECT_FALSE(is_alive(pid_of(mark)));
    }

    release("finish");
    EXPECT_EQ(survivor->wait(), 0) << survivor->output();
    EXPECT_EQ(returned->wait(), 0) << returned->output();
}

INSTANTIATE_TEST_SUITE_P(Nodes, RunNodeLossOfEither, ::testing::Values(1U, 2U),
                         [](const auto& named) {
                             return named.param == 1 ? "GroupRankZero" : "GroupRankOne";
                         });

TEST_F(RunNodeLoss, FrozenAgentIsLostBySilenceAndFencedWhenItWakes) {
    auto survivor = start(1, "1:2");
    auto frozen = start(2, "1:2");
    const auto first = await_marks("up", 4);
    ASSERT_THAT(first, SizeIs(4)) << survivor->output() << frozen->output();

    const std::vector<pid_t> agents = children_of(frozen->pid());
    ASSERT_THAT(agents, SizeIs(1));
    ::kill(agents.front(), SIGSTOP);
    const auto second = await_marks("up", 2, 2);
    ASSERT_THAT(second, SizeIs(2)) << survivor->output();
    expect_world(second, "1");
    EXPECT_THAT(survivor->output(), HasSubstr("127.0.0.3 is lost"));

    ::kill(agents.front(), SIGCONT);
    const auto third = await_marks("up", 4, 3);
    ASSERT_THAT(third, SizeIs(4)) << survivor->output() << frozen->output();
    expect_world(third, "2");
    for (const auto& [rank, mark] : first) {
        EXPECT_FALSE(is_alive(pid_of(mark))) << "rank " << rank << " of the first round";
    }
    release("finish");
    EXPECT_EQ(survivor->wait(), 0) << survivor->output();
    EXPECT_EQ(frozen->wait(), 0) << frozen->output();
}

TEST_F(RunNodeLoss, JobOfFixedSizeWaitsForTheReplacement) {
    auto survivor = start(1, "2");
    auto lost = start(2, "2");
    ASSERT_THAT(await_marks("up", 4), SizeIs(4)) << survivor->output() << lost->output();

    const std::size_t before = survivor->output().size();
    lost->signal(SIGKILL);
    EXPECT_TRUE(survivor->prints_behind(before, "waiting: ")) << survivor->output();
    EXPECT_THAT(survivor->output().substr(before), HasSubstr("1 of 2 nodes"));
    EXPECT_THAT(survivor->output(), HasSubstr(rendezvous_.endpoint()));
    EXPECT_THAT(marks("up"), SizeIs(1));

    auto replacement = start(7, "2");
    const auto second = await_marks("up", 4, 2);
    ASSERT_THAT(second, SizeIs(4)) << survivor->output() << replacement->output();
    expect_world(second, "2");
    EXPECT_EQ(parent_of(second, 0, *survivor), survivor->pid());
    EXPECT_EQ(parent_of(second, 2, *replacement), replacement->pid());
    release("finish");
    EXPECT_EQ(survivor->wait(), 0) << survivor->output();
    EXPECT_EQ(replacement->wait(), 0) << replacement->output();
}

TEST_F(RunNodeLoss, HostOfTheRendezvousThatComesBackFindsTheOtherStillTraining) {
    const std::string endpoint = "127.0.0.1:" + std::to_string(unused_port());
    auto host = start(node(1, "2", endpoint));
    ASSERT_TRUE(host->prints("waiting: ")) << host->output();
    auto other = start(node(2, "2", endpoint));
    const auto first = await_marks("up", 4);
    ASSERT_THAT(first, SizeIs(4)) << host->output() << other->output();

    host->signal(SIGKILL);
    ASSERT_TRUE(other->prints("the workers go on meanwhile")) << other->output();
    EXPECT_TRUE(is_alive(pid_of(first.at(2))));
    EXPECT_EQ(host->wait(), 128 + SIGKILL);

    auto returned = start(node(1, "2", endpoint));
    const auto second = await_marks("up", 4, 2);
    ASSERT_THAT(second, SizeIs(4)) << returned->output() << other->output();
    expect_world(second, "2");
    EXPECT_FALSE(is_alive(pid_of(first.at(2))));
    release("finish");
    EXPECT_EQ(returned->wait(), 0) << returned->output();
    EXPECT_EQ(other->wait(), 0) << other->output();
}

TEST_F(RunNodeLoss, StaticNodeThatIsStartedAgainHasItsRank) {
    const std::string port = std::to_string(unused_port());
    const auto flags = [&](const std::string& rank) {
        return Words{"--nnodes=2", "--node-rank=" + rank, "--master-addr=127.0.0.1",
                     "--master-port=" + port};
    };
    auto survivor = start(flags("0"));
    auto lost = start(flags("1"));
    ASSERT_THAT(await_marks("up", 4), SizeIs(4)) << survivor->output() << lost->output();
    lost->signal(SIGKILL);
    // The node rank is taken while a process of the old node lives.
    ASSERT_TRUE(eventually([&] { return lost->family().empty(); }));

    auto returned = start(flags("1"));
    const auto second = await_marks("up", 4, 2);
    ASSERT_THAT(second, SizeIs(4)) << survivor->output() << returned->output();
    expect_world(second, "2");
    EXPECT_EQ(parent_of(second, 2, *returned), returned->pid());
    EXPECT_EQ(second.at(0).at("MASTER_PORT"), port);
    release("finish");
    EXPECT_EQ(survivor->wait(), 0) << survivor->output();
    EXPECT_EQ(returned->wait(), 0) << returned->output();
}

TEST_F(RunNodeLoss, StandbyTakesThePlaceAndTheRanksOfTheLostNode) {
    auto lost = start(1, "1:2");
    auto survivor = start(2, "1:2");
    ASSERT_THAT(await_marks("up", 4), SizeIs(4)) << survivor->output() << lost->output();
    auto standby = start(3, "1:2");
    ASSERT_TRUE(standby->prints("waiting as a standby")) << standby->output();

    lost->signal(SIGKILL);
    const auto second = await_marks("up", 4, 2);
    ASSERT_THAT(second, SizeIs(4)) << survivor->output() << standby->output();
    expect_world(second, "2");
    EXPECT_EQ(parent_of(second, 0, *standby), standby->pid());
    EXPECT_EQ(parent_of(second, 2, *survivor), survivor->pid());
    release("finish");
    EXPECT_EQ(survivor->wait(), 0) << survivor->output();
    EXPECT_EQ(standby->wait(), 0) << standby->output();
}

TEST_F(RunNodeLoss, SigtermToOneAgentMakesOnlyThatNodeLeave) {
    auto survivor = start(1, "1:2");
    auto leaver = start(2, "1:2");
    ASSERT_THAT(await_marks("up", 4), SizeIs(4)) << survivor->output() << leaver->output();

    leaver->signal(SIGTERM);
    EXPECT_EQ(leaver->wait(), 128 + SIGTERM) << leaver->output();
    EXPECT_EQ(leaver->ended_by(), SIGTERM);
    const auto second = await_marks("up", 2, 2);
    ASSERT_THAT(second, SizeIs(2)) << survivor->output();
    expect_world(second, "1");
    EXPECT_THAT(survivor->output(), HasSubstr("node 127.0.0.3 left: stopped by SIGTERM"));
    EXPECT_THAT(leaver->family(), IsEmpty());
    release("finish");
    EXPECT_THAT(ended(*survivor), exits(0, Not(HasSubstr("failed"))));
}

}  // namespace
}  // namespace regroup::testing
