// SPDX-License-Identifier: Apache-2.0
//
// Elastic jobs: losses, planned departures, and standbys.
#include <csignal>
#include <cstdlib>
#include <memory>
#include <regex>

#include "tests/e2e/end_to_end.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

using Marks = std::map<std::uint32_t, Mark>;

/// The value of `name`, which must be the same in every mark.
std::string common(const Marks& marks, const std::string& name) {
    std::string value;
    for (const auto& [rank, mark] : marks) {
        const auto found = mark.find(name);
        const std::string here = found != mark.end() ? found->second : "missing";
        EXPECT_THAT(value, AnyOf("", here)) << name << " of rank " << rank;
        value = here;
    }
    return value;
}

class RunElastic : public EndToEnd {
   protected:
    [[nodiscard]] Program start_one(const Words& flags, const Words& arguments = {}) const {
        return run(Words{"--standalone"} + flags + Words{elastic_probe_program()} + arguments);
    }
    [[nodiscard]] std::unique_ptr<Program> start_node(unsigned number, const std::string& nodes,
                                                      const std::string& endpoint,
                                                      const Words& flags = {},
                                                      const Words& arguments = {}) const {
        return start_run(node(number, nodes, endpoint) +
                         Words{"--nproc-per-node=2", "--shutdown-timeout=30", "--last-call=30"} +
                         flags + Words{elastic_probe_program()} + arguments);
    }
    static void expect_same_process(const Marks& before, const Marks& after, std::uint32_t rank) {
        EXPECT_EQ(pid_of(before.at(rank)), pid_of(after.at(rank))) << "rank " << rank;
    }
    /// Checks that every rank has the sum of all samples: none lost, none counted twice.
    void expect_whole_training(std::size_t ranks) const {
        const Marks done = last_marks("done");
        ASSERT_THAT(done, SizeIs(ranks));
        EXPECT_EQ(std::stod(common(done, "taken")), std::stod(common(done, "samples")));
        EXPECT_EQ(std::stod(common(done, "committed")), std::stod(common(done, "step")));
    }
};

TEST_F(RunElastic, LostWorkerIsReplacedAndItsPeersKeepTheirProcesses) {
    Program job = start_one({"--nproc-per-node=4", "--max-restarts=3"});
    const Marks first = await_marks("up", 4);
    ASSERT_THAT(first, SizeIs(4));
    ::kill(pid_of(first.at(2)), SIGKILL);
    const Marks second = await_marks("up", 4, 2);
    ASSERT_THAT(second, SizeIs(4)) << job.output();
    for (const std::uint32_t rank : {0U, 1U, 3U}) {
        expect_same_process(first, second, rank);
    }
    EXPECT_NE(pid_of(first.at(2)), pid_of(second.at(2)));
    common(second, "step");
    // The new worker and an old one at the same time.
    ::kill(pid_of(second.at(2)), SIGKILL);
    ::kill(pid_of(second.at(0)), SIGKILL);
    const Marks third = await_marks("up", 4, 3);
    ASSERT_THAT(third, SizeIs(4)) << job.output();
    expect_same_process(second, third, 1);
    expect_same_process(second, third, 3);
    release("finish");
    EXPECT_EQ(job.wait(), 0) << job.output();
    expect_whole_training(4);
    EXPECT_THAT(job.output(), saying("rank 2 on", "was ended by SIGKILL", "recovered in"));
}

TEST_F(RunElastic, LossOfAllProcessesGoesBackToTheNewestSnapshot) {
    Program job = start_one({"--nproc-per-node=3", "--max-restarts=3"}, {"keep"});
    const Marks first = await_marks("up", 3);
    ASSERT_THAT(first, SizeIs(3)) << job.output();
    ASSERT_TRUE(eventually([&] { return step() >= 20; })) << job.output();
    for (const auto& [rank, mark] : first) {
        ::kill(pid_of(mark), SIGKILL);
    }
    const Marks second = await_marks("up", 3, 2);
    ASSERT_THAT(second, SizeIs(3)) << job.output();
    EXPECT_GE(std::stoull(common(second, "step")), 10) << job.output();
    release("finish");
    EXPECT_EQ(job.wait(), 0) << job.output();
    expect_whole_training(3);
}

TEST_F(RunElastic, WorkerDeathReleasesBlockedCollectivesWithinAQuarterOfASecond) {
    constexpr std::int64_t kLimitNs = 250'000'000;
    Program job = start_one({"--nproc-per-node=3", "--max-restarts=1"}, {"die"});
    ASSERT_THAT(await_marks("up", 3), SizeIs(3)) << job.output();
    release("throw");
    ASSERT_THAT(await_marks("released", 2), SizeIs(2)) << job.output();
    const std::int64_t killed = std::stoll(mark("killed", 1, 1).at("ns"));
    for (const std::uint32_t rank : {0U, 2U}) {
        EXPECT_LT(std::stoll(mark("released", 1, rank).at("ns")) - killed, kLimitNs)
            << "rank " << rank;
    }
    ASSERT_THAT(await_marks("up", 3, 2), SizeIs(3)) << job.output();
    release("finish");
    EXPECT_EQ(job.wait(), 0) << job.output();
    expect_whole_training(3);
}

TEST_F(RunElastic, BrokenConnectionEndsTheRoundNamesBothEndsAndChargesNothing) {
    const Words flags{"--max-restarts=0", "--rdzv-id=x", "--log-dir=runs"};
    Program job = start_one(Words{"--nproc-per-node=4"} + flags, {"sever"});
    const Marks first = await_marks("up", 4);
    ASSERT_THAT(first, SizeIs(4));
    release("sever");
    const Marks second = await_marks("up", 4, 2);
    ASSERT_THAT(second, SizeIs(4)) << job.output();
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
        expect_same_process(first, second, rank);
    }
    release("finish");
    EXPECT_EQ(job.wait(), 0) << job.output();
    expect_whole_training(4);
    // If only one end has seen the break, the message names that end first.
    const char* const cause = "the connection between rank [0-3] on .* and rank [0-3] on .* broke";
    EXPECT_THAT(job.output(), ContainsRegex(cause));
    EXPECT_THAT(job.output(), Not(HasSubstr("gave the round up")));
    EXPECT_THAT(read_file(folder() + "/runs/x/recoveries.jsonl"), ContainsRegex(cause))
        << job.output();
}

TEST_F(RunElastic, WorkerOutputGoesToTheFilesOfItsRound) {
    Program job =
        start_one({"--nproc-per-node=2", "--max-restarts=1", "--rdzv-id=x", "--log-dir=runs"});
    const Marks first = await_marks("up", 2);
    ASSERT_THAT(first, SizeIs(2));
    ::kill(pid_of(first.at(1)), SIGKILL);
    ASSERT_THAT(await_marks("up", 2, 2), SizeIs(2)) << job.output();
    release("finish");
    EXPECT_EQ(job.wait(), 0) << job.output();
    const std::string runs = folder() + "/runs/x/";
    EXPECT_EQ(read_file(runs + "round_1/rank00000.out"), "round 1 from step 0\n");
    EXPECT_THAT(read_file(runs + "round_2/rank00000.out"), HasSubstr("round 2 from step "));
    EXPECT_THAT(read_file(runs + "round_2/rank00001.out"), HasSubstr("round 2 from step "));
}

// No peer knows the steps of a single worker, and its node leaves before the job ends. So the
// summary must come from the heartbeats, when the node leaves.
TEST_F(RunElastic, LossOfTheOnlyWorkerIsCountedInStepsAndSummedUpWhenItsNodeLeaves) {
    Program job = start_one({"--nproc-per-node=1", "--max-restarts=1"}, {"beat"});
    const Marks first = await_marks("up", 1);
    ASSERT_THAT(first, SizeIs(1));
    const auto step = [&] {
        return std::strtoul(read_file(folder() + "/step").c_str(), nullptr, 10);
    };
    ASSERT_TRUE(eventually([&] { return step() >= 30; })) << job.output();
    ::kill(pid_of(first.at(0)), SIGKILL);
    ASSERT_TRUE(eventually([&] { return job.output().find("recovered in") != std::string::npos; }))
        << job.output();
    job.signal(SIGTERM);
    EXPECT_EQ(job.wait(), 75) << job.output();
    const std::string output = job.output();
    std::smatch said;
    ASSERT_TRUE(std::regex_search(output, said, std::regex("\\(([0-9]+) steps to do again\\)")))
        << output;
    EXPECT_GE(std::stoul(said[1]), 29U) << "steps that were committed";
    EXPECT_THAT(output, ContainsRegex("regroup: while this node took part, 1 recovery took .* % of "
                                      ".* spent training; " +
                                      said[1].str() + " steps were done again"));
}

TEST_F(RunElastic, SignalLetsTheLastNodeSaveItsState) {
    Program job = start_one({"--nproc-per-node=2"});
    ASSERT_THAT(await_marks("up", 2), SizeIs(2));
    job.signal(SIGTERM);
    EXPECT_EQ(job.wait(), 75) << job.output();
    const Marks left = last_marks("left");
    ASSERT_THAT(left, SizeIs(2));
    common(left, "step");
    EXPECT_THAT(job.output(), HasSubstr("drained: stopped by SIGTERM"));
    EXPECT_THAT(job.family(), IsEmpty());
}

TEST_F(RunElastic, LeavingNodeLosesNoStep) {
    const Rendezvous rendezvous;
    std::vector<std::unique_ptr<Program>> nodes;
    for (unsigned number = 1; number <= 3; ++number) {
        nodes.push_back(start_node(number, "1:3", rendezvous.endpoint()));
    }
    const Marks first = await_marks("up", 6);
    ASSERT_THAT(first, SizeIs(6));
    nodes[1]->signal(SIGTERM);
    EXPECT_EQ(nodes[1]->wait(), 75) << nodes[1]->output();
    const Marks second = await_marks("up", 4, 2);
    ASSERT_THAT(second, SizeIs(4)) << nodes[0]->output();
    const Marks left = last_marks("left");
    ASSERT_THAT(left, SizeIs(2));
    EXPECT_EQ(common(left, "step"), common(second, "step"));
    std::vector<pid_t> before;
    for (const auto& [rank, mark] : first) {
        before.push_back(pid_of(mark));
    }
    for (const auto& [rank, mark] : second) {
        EXPECT_THAT(before, Contains(pid_of(mark))) << "rank " << rank;
    }
    release("finish");
    EXPECT_EQ(nodes[0]->wait(), 0) << nodes[0]->output();
    EXPECT_EQ(nodes[2]->wait(), 0) << nodes[2]->output();
    expect_whole_training(4);
}

TEST_F(RunElastic, NodeThatLeavesBetweenTwoRoundsSavesItsStateAndTheOthersGoOn) {
    const Rendezvous rendezvous;
    std::vector<std::unique_ptr<Program>> nodes;
    for (unsigned number = 1; number <= 3; ++number) {
        nodes.push_back(start_node(number, "3:3", rendezvous.endpoint()));
    }
    ASSERT_THAT(await_marks("up", 6), SizeIs(6)) << nodes[0]->output();
    // Without the third node there is no round, and the workers of the other two are suspended.
    // They have also waited before the first round, so look only at later output.
    const std::size_t before[] = {nodes[0]->output().size(), nodes[1]->output().size()};
    for (const pid_t pid : nodes[2]->family()) {
        ::kill(pid, SIGKILL);
    }
    ASSERT_TRUE(nodes[0]->prints_behind(before[0], "waiting: ")) << nodes[0]->output();
    ASSERT_TRUE(nodes[1]->prints_behind(before[1], "waiting: ")) << nodes[1]->output();
    nodes[1]->signal(SIGTERM);
    EXPECT_THAT(ended(*nodes[1]), exits(75, "drained: stopped by SIGTERM"));
    EXPECT_THAT(nodes[1]->family(), IsEmpty());
    const Marks left = last_marks("left");
    ASSERT_THAT(left, SizeIs(2));
    for (unsigned number = 4; number <= 5; ++number) {
        nodes.push_back(start_node(number, "3:3", rendezvous.endpoint()));
    }
    const Marks second = await_marks("up", 6, 2);
    ASSERT_THAT(second, SizeIs(6)) << nodes[0]->output();
    // The last vote may have reached only some ranks of a node, so states differ by one step at
    // most.
    const std::uint64_t reached = std::stoull(common(second, "step"));
    for (const auto& [rank, mark] : left) {
        const std::uint64_t saved = std::stoull(mark.at("step"));
        EXPECT_LE(saved, reached + 1) << "rank " << rank;
        EXPECT_GE(saved + 1, reached) << "rank " << rank;
    }
    release("finish");
    for (const std::size_t node : {0U, 3U, 4U}) {
        EXPECT_EQ(nodes[node]->wait(), 0) << nodes[node]->output();
    }
    expect_whole_training(6);
}

TEST_F(RunElastic, DrainLongerThanTheShutdownTimeoutIsCutShort) {
    Program job = start_one({"--nproc-per-node=2", "--shutdown-timeout=1"}, {"stall"});
    ASSERT_THAT(await_marks("up", 2), SizeIs(2));
    release("stall");
    // The other worker may have passed that point and wait in a collective of the step.
    ASSERT_TRUE(eventually([&] { return !last_marks("stalled").empty(); }));
    job.signal(SIGTERM);
    job.wait();
    // A worker that waits in a collective may still save the last step. The stalled one cannot.
    EXPECT_EQ(job.ended_by(), SIGTERM) << job.output();
    EXPECT_LT(last_marks("left").size(), 2U);
    EXPECT_THAT(job.family(), IsEmpty());
}

TEST_F(RunElastic, StandbyReplacesALostNodeWithWorkersStartedAhead) {
    const Rendezvous rendezvous;
    const Words flags{"--standbys=1", "--last-call=0"};
    auto first_node = start_node(1, "2:2", rendezvous.endpoint(), flags);
    auto lost = start_node(2, "2:2", rendezvous.endpoint(), flags);
    const Marks first = await_marks("up", 4);
    ASSERT_THAT(first, SizeIs(4));
    auto standby = start_node(3, "2:2", rendezvous.endpoint(), flags);
    ASSERT_TRUE(standby->prints("started 2 spare workers")) << standby->output();
    // Warden, agent and two workers. A process that has just started may not be counted yet.
    ASSERT_TRUE(eventually([&] { return standby->family().size() == 4; }));
    const std::vector<pid_t> ahead = standby->family();
    for (const pid_t pid : lost->family()) {
        ::kill(pid, SIGKILL);
    }
    const Marks second = await_marks("up", 4, 2);
    ASSERT_THAT(second, SizeIs(4)) << first_node->output() << standby->output();
    for (const auto& [rank, mark] : second) {
        const pid_t before = pid_of(first.at(rank));
        if (pid_of(mark) != before) {
            EXPECT_THAT(ahead, Contains(pid_of(mark)));
            EXPECT_TRUE(eventually([&] { return !is_alive(before); }));
        }
    }
    release("finish");
    EXPECT_EQ(first_node->wait(), 0) << first_node->output();
    EXPECT_EQ(standby->wait(), 0) << standby->output();
    expect_whole_training(4);
    EXPECT_THAT(standby->output(), HasSubstr("waiting as a standby"));
}

TEST_F(RunElastic, KilledAgentIsKnownToBeDeadAndNotOnlySuspected) {
    const Rendezvous rendezvous;
    // Long enough for the warden's message about the killed agent.
    const Words patient{"--regroup-window=5"};
    auto other = start_node(1, "1:2", rendezvous.endpoint(), patient);
    auto killed = start_node(2, "1:2", rendezvous.endpoint(), patient);
    const Marks first = await_marks("up", 4);
    ASSERT_THAT(first, SizeIs(4));
    const std::vector<pid_t> agents = children_of(killed->pid());
    ASSERT_THAT(agents, SizeIs(1));
    ::kill(agents[0], SIGKILL);
    const Marks second = await_marks("up", 2, 2);
    ASSERT_THAT(second, SizeIs(2)) << other->output();
    EXPECT_THAT(other->output(), HasSubstr("left: its agent was killed"));
    EXPECT_EQ(killed->wait(), 128 + SIGKILL);
    EXPECT_THAT(killed->family(), IsEmpty());
    release("finish");
    EXPECT_EQ(other->wait(), 0) << other->output();
    expect_whole_training(2);
}

TEST_F(RunElastic, NodeThatHostsTheRendezvousStaysUntilTheOthersHaveLeft) {
    const std::string endpoint = "127.0.0.2:" + std::to_string(unused_port());
    auto host = start_node(1, "2:2", endpoint);
    auto other = start_node(2, "2:2", endpoint);
    ASSERT_THAT(await_marks("up", 4), SizeIs(4)) << host->output() << other->output();
    host->signal(SIGTERM);
    EXPECT_EQ(host->wait(), 75) << host->output();
    EXPECT_EQ(other->wait(), 75) << other->output();
    const Marks left = last_marks("left");
    ASSERT_THAT(left, SizeIs(4));
    common(left, "step");
}

TEST_F(RunElastic, UnneededStandbyEndsWithTheJob) {
    const Rendezvous rendezvous;
    const Words flags{"--standbys=1", "--last-call=0"};
    auto member = start_node(1, "1:1", rendezvous.endpoint(), flags);
    ASSERT_THAT(await_marks("up", 2), SizeIs(2));
    auto standby = start_node(2, "1:1", rendezvous.endpoint(), flags);
    ASSERT_TRUE(standby->prints("started 2 spare workers")) << standby->output();
    release("finish");
    EXPECT_EQ(member->wait(), 0) << member->output();
    EXPECT_THAT(ended(*standby), exits(0, "has ended (succeeded); this node waited as a standby"));
    EXPECT_THAT(standby->family(), IsEmpty());
}

TEST_F(RunElastic, StandbyIsDrainedAtOnce) {
    const Rendezvous rendezvous;
    const Words flags{"--standbys=1", "--last-call=0"};
    auto member = start_node(1, "1:1", rendezvous.endpoint(), flags);
    ASSERT_THAT(await_marks("up", 2), SizeIs(2));
    auto standby = start_node(2, "1:1", rendezvous.endpoint(), flags);
    ASSERT_TRUE(standby->prints("started 2 spare workers")) << standby->output();
    standby->signal(SIGTERM);
    EXPECT_EQ(standby->wait(), 75) << standby->output();
    EXPECT_THAT(standby->family(), IsEmpty());
    release("finish");
    EXPECT_EQ(member->wait(), 0) << member->output();
    EXPECT_THAT(last_marks("up"), SizeIs(2));
    EXPECT_TRUE(marks("up").size() == 1) << member->output();
}

TEST_F(RunElastic, FailureIsChargedToTheFailedWorkerHoweverSlowlyItExits) {
    const Rendezvous rendezvous;
    auto first = start_node(1, "2:2", rendezvous.endpoint(), {}, {"throw"});
    auto second = start_node(2, "2:2", rendezvous.endpoint(), {}, {"throw"});
    ASSERT_THAT(await_marks("up", 4), SizeIs(4)) << first->output() << second->output();
    release("throw");
    // The peers have noticed the loss and do not know its cause yet: they report lost peers, or a
    // broken connection that ends the round.
    EXPECT_TRUE(eventually([&] {
        const std::string told = first->output() + second->output();
        return told.find("has lost its peers in round 1") != std::string::npos ||
               told.find("the connection between rank") != std::string::npos;
    })) << first->output()
        << second->output();
    release("core");
    const std::string cause = "exited with code 1: no such shard";
    for (const auto& node : {&first, &second}) {
        // It is charged, and no restart is allowed.
        EXPECT_EQ((*node)->wait(), 1) << (*node)->output();
        EXPECT_THAT((*node)->output(), HasSubstr(cause));
    }
}

TEST_F(RunElastic, FatalKindReportedByTheProgramOverridesTheLoops) {
    // --on-exit=none: the kind is known from report_fatal() alone.
    Program job =
        start_one({"--nproc-per-node=2", "--max-restarts=3", "--on-exit=none"}, {"explain"});
    release("throw");
    EXPECT_THAT(ended(job), exits(78, "exited with code 78: there is no such data set",
                                  Not(HasSubstr("round 2"))));
}

TEST_F(RunElastic, RanksThatDisagreeAboutTheLastStepEndTheJobAtOnceAndAreNamed) {
    Program job = start_one({"--nproc-per-node=3", "--max-restarts=3"}, {"disagree"});
    release("throw");
    EXPECT_THAT(ended(job),
                exits(1, ": rank 0 has called finish(), and ranks 1, 2 have not",
                      "it says that trying again cannot help", Not(HasSubstr("round 2"))));
}

TEST_F(RunElastic, JobWhoseParametersDifferFailsAndNamesTheRank) {
    // A restart repairs the parameters, but this program makes them differ again.
    Program job = start_one({"--nproc-per-node=3", "--max-restarts=1"}, {"differ"});
    release("finish");
    EXPECT_THAT(ended(job), exits(1, "rank 1 on ",
                                  "exited with code 1: the replicas differ: \"weights\" of "
                                  "rank 1 is not what the others have"));
    EXPECT_THAT(last_marks("done"), IsEmpty());
}

TEST_F(RunElastic, JobWhoseRanksSaveDifferentBytesFailsAndNamesTheRank) {
    Program job = start_one({"--nproc-per-node=3"}, {"misprint"});
    release("finish");
    EXPECT_EQ(job.wait(), 1) << job.output();
    EXPECT_THAT(
        job.output(),
        HasSubstr("the replicas differ: \"history\" of rank 1 is not what the others have"));
    EXPECT_THAT(last_marks("done"), IsEmpty());
}

TEST_F(RunElastic, ExitCodesChooseRestartOrFailure) {
    Program failed =
        run_probe({"--standalone", "--max-restarts=5", "--on-exit=9=fail"}, {"exit=9"});
    EXPECT_THAT(ended(failed), exits(9, Not(HasSubstr("round 2"))));
    Program retried = run_probe({"--standalone"}, {"round=1?exit=75"});
    EXPECT_THAT(ended(retried), exits(0, "round 2"));
}

}  // namespace
}  // namespace regroup::testing
