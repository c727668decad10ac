// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/fake_agent.h"
#include "tests/support/matchers.h"
#include "tests/support/program.h"

namespace regroup::testing {
namespace {

using worker_link::AssignWorker;
using worker_link::Phase;
using worker_link::Resumed;
using worker_link::Suspended;

constexpr const char* kSteps = "--steps=60";
// Steps that take seconds, for tests that act before the last step.
constexpr const char* kUnhurried = "--step-ms=40";

std::string last_line(const std::string& output) {
    const std::vector<std::string> lines = lines_of(output);
    return lines.empty() ? "" : lines.back();
}

/// The last line of every run with so many steps, also after failures.
const std::string& undisturbed_ending() {
    static const std::string ending = [] {
        Program alone({.command = {ELASTIC_PROGRAM, kSteps}, .environment = {}, .directory = {}});
        EXPECT_EQ(alone.wait(), 0) << alone.output();
        return last_line(alone.output());
    }();
    return ending;
}

class Elastic : public ::testing::Test {
   protected:
    using Workers = std::vector<std::string>;

    void start(const std::string& worker, const std::vector<std::string>& variables,
               const std::vector<std::string>& flags) {
        std::vector<std::string> command{ELASTIC_PROGRAM, kSteps};
        command.insert(command.end(), flags.begin(), flags.end());
        std::vector<std::string> environment{"REGROUP_AGENT_SOCKET=" + agent_.socket(),
                                             "REGROUP_WORKER_ID=" + worker};
        environment.insert(environment.end(), variables.begin(), variables.end());
        programs_[worker] = std::make_unique<Program>(ProgramSpec{
            .command = std::move(command), .environment = std::move(environment), .directory = {}});
    }
    void start(const std::string& worker, const AssignWorker& assigned,
               const std::vector<std::string>& flags = {}) {
        std::vector<std::string> variables{"TORCHELASTIC_USE_AGENT_STORE=True"};
        worker_link::visit_variables(
            [&](const auto& fact, const std::string& value) {
                variables.push_back(std::string(fact.variable) + "=" + value);
            },
            assigned.place);
        start(worker, variables, flags);
    }
    void start_all(const Workers& workers, const std::vector<std::string>& flags = {}) {
        const auto places = rounds_.begin(workers.size());
        for (std::size_t rank = 0; rank < workers.size(); ++rank) {
            start(workers[rank], places[rank], flags);
        }
    }
    void start_standby(const std::string& worker) { start(worker, {"REGROUP_PRESTARTED=1"}, {}); }
    void await_resumed(const Workers& workers) {
        for (const std::string& worker : workers) {
            while (agent_.await<Resumed>(worker).round != rounds_.round()) {
            }
        }
    }
    void expect_undisturbed_ending(const Workers& workers) {
        for (const std::string& worker : workers) {
            EXPECT_EQ(programs_[worker]->wait(), 0) << worker << ":\n" << output(worker);
        }
        EXPECT_EQ(last_line(output(workers.front())), undisturbed_ending());
    }
    [[nodiscard]] std::string output(const std::string& worker) {
        return programs_[worker]->output();
    }

    FakeAgent agent_;
    FakeRounds rounds_{agent_};
    std::map<std::string, std::unique_ptr<Program>> programs_;
};

TEST_F(Elastic, UndisturbedJobEqualsAJobOfOneRank) {
    const Workers workers{"a", "b", "c"};
    start_all(workers);
    expect_undisturbed_ending(workers);
}

TEST_F(Elastic, PageShowsADeathAndNoOrderlyEnd) {
    start_all({"a", "b"}, {"--fail-at=20", "--fail-rank=1"});
    agent_.await_death("b");
    EXPECT_EQ(agent_.page("b").exiting, 0U);
    rounds_.end({"a"});
    rounds_.assign({"a"});
    EXPECT_EQ(programs_["a"]->wait(), 0) << output("a");
    agent_.await_death("a");
    EXPECT_EQ(agent_.page("a").exiting, 1U);
}

TEST_F(Elastic, SurvivorsGoOnAfterARankIsKilledInAReduction) {
    start_all({"a", "b", "c", "d"}, {"--fail-at=20", "--fail-rank=2"});
    agent_.await_death("c");
    rounds_.end({"a", "b", "d"});
    rounds_.assign({"a", "b", "d"});
    expect_undisturbed_ending({"a", "b", "d"});
    EXPECT_EQ(programs_["c"]->wait(), 128 + SIGKILL);
}

TEST_F(Elastic, FreshProcessGetsTheStateFromTheOthers) {
    start_all({"a", "b", "c"}, {"--fail-at=30", "--fail-rank=0"});
    agent_.await_death("a");
    rounds_.end({"b", "c"});
    const auto places = rounds_.begin(3);
    start("fresh", places[0]);
    agent_.send("b", places[1]);
    agent_.send("c", places[2]);
    expect_undisturbed_ending({"fresh", "b", "c"});
    EXPECT_NE(output("fresh").find("round 2: rank 0 of 3"), std::string::npos);
    // The others may not have received the vote on the step before.
    EXPECT_THAT(output("fresh"), AnyOf(HasSubstr("from step 30"), HasSubstr("from step 29")));
}

TEST_F(Elastic, PrestartedStandbyTakesTheRankOfALostWorker) {
    start_standby("standby");
    EXPECT_EQ(agent_.await<Suspended>("standby"), Suspended{});
    start_all({"a", "b"}, {"--fail-at=30", "--fail-rank=1"});
    agent_.await_death("b");
    rounds_.end({"a"});
    rounds_.assign({"a", "standby"});
    expect_undisturbed_ending({"a", "standby"});
    EXPECT_NE(output("standby").find("round 2: rank 1 of 2"), std::string::npos);
}

TEST_F(Elastic, DeathWhileTheRoundFormsBlocksNoRank) {
    start_all({"a", "b", "c"}, {kUnhurried});
    await_resumed({"a", "b", "c"});
    rounds_.end({"a", "b", "c"});
    programs_["c"]->signal(SIGKILL);
    agent_.await_death("c");
    rounds_.assign({"a", "b", "c"});
    for (const char* const worker : {"a", "b"}) {
        EXPECT_TRUE(eventually([&] { return agent_.page(worker).phase == Phase::forming; }));
    }
    rounds_.end({"a", "b"});
    rounds_.assign({"a", "b"});
    expect_undisturbed_ending({"a", "b"});
}

TEST_F(Elastic, PauseSuspendsAllRanksAtTheSameStepAndANewRankLosesNoSample) {
    start_all({"a", "b"}, {kUnhurried});
    await_resumed({"a", "b"});
    agent_.pause("a", rounds_.round(), false);
    agent_.pause("b", rounds_.round(), false);
    const auto a = agent_.await<Suspended>("a");
    const auto b = agent_.await<Suspended>("b");
    EXPECT_EQ(a, b);
    EXPECT_GT(a.step, 0U);
    start_standby("c");
    EXPECT_EQ(agent_.await<Suspended>("c"), Suspended{});
    rounds_.assign({"a", "b", "c"});
    expect_undisturbed_ending({"a", "b", "c"});
}

TEST_F(Elastic, DrainedRankLeavesAtTheStepWhereTheOthersSuspend) {
    start_all({"a", "b", "c"}, {kUnhurried});
    await_resumed({"a", "b", "c"});
    agent_.pause("b", rounds_.round(), false);
    agent_.pause("a", rounds_.round(), false);
    agent_.pause("c", rounds_.round(), true);
    const auto a = agent_.await<Suspended>("a");
    EXPECT_EQ(agent_.await<Suspended>("b"), a);
    EXPECT_EQ(programs_["c"]->wait(), 0) << output("c");
    EXPECT_NE(output("c").find("leaving after step " + std::to_string(a.step) + ": a drain"),
              std::string::npos)
        << output("c");
    rounds_.assign({"a", "b"});
    expect_undisturbed_ending({"a", "b"});
}

TEST_F(Elastic, SuspendedRankLeavesOnRequest) {
    start_all({"a", "b"}, {kUnhurried});
    await_resumed({"a", "b"});
    rounds_.end({"a", "b"});
    agent_.let_leave("b", rounds_.round());
    EXPECT_EQ(programs_["b"]->wait(), 0) << output("b");
    EXPECT_NE(output("b").find("leaving after step"), std::string::npos);
    rounds_.assign({"a"});
    expect_undisturbed_ending({"a"});
}

/// SIGTERM from a process that is not the agent, which is this one.
void terminate_as_a_scheduler(const Program& program) {
    Program stranger({.command = {"/bin/kill", "-TERM", std::to_string(program.pid())},
                      .environment = {},
                      .directory = {}});
    EXPECT_EQ(stranger.wait(), 0) << stranger.output();
}

TEST_F(Elastic, SchedulersSigtermEndsAWorkerThatIsNotAskedToLeave) {
    start_all({"a", "b"}, {"--step-ms=150"});  // The worker ends before the last step.
    await_resumed({"a", "b"});
    terminate_as_a_scheduler(*programs_["b"]);
    EXPECT_EQ(programs_["b"]->wait(), 128 + SIGTERM) << output("b");
    EXPECT_EQ(programs_["b"]->ended_by(), SIGTERM);
    rounds_.end({"a"});
    rounds_.assign({"a"});
    expect_undisturbed_ending({"a"});
}

TEST_F(Elastic, SchedulersSigtermDoesNotEndAWorkerThatIsThenAskedToLeave) {
    start_all({"a", "b"}, {kUnhurried});
    await_resumed({"a", "b"});
    terminate_as_a_scheduler(*programs_["b"]);
    agent_.pause("b", rounds_.round(), true);
    EXPECT_EQ(agent_.await<Suspended>("a").at_boundary, true);
    EXPECT_EQ(programs_["b"]->wait(), 0) << output("b");
    EXPECT_THAT(output("b"), HasSubstr("leaving after step"));
    rounds_.assign({"a"});
    expect_undisturbed_ending({"a"});
}

TEST_F(Elastic, SchedulersSigtermIsDeferredWhileTheNodeIsAboutToLeave) {
    start_all({"a", "b"}, {"--step-ms=150"});
    await_resumed({"a", "b"});
    agent_.page("b").draining.store(1);
    const std::uint64_t before = agent_.page("b").step;
    terminate_as_a_scheduler(*programs_["b"]);
    // Longer than a worker waits for its agent.
    ASSERT_TRUE(eventually([&] { return agent_.page("b").step > before + 18; })) << output("b");
    agent_.pause("b", rounds_.round(), true);
    EXPECT_EQ(agent_.await<Suspended>("a").at_boundary, true);
    EXPECT_EQ(programs_["b"]->wait(), 0) << output("b");
    rounds_.assign({"a"});
    expect_undisturbed_ending({"a"});
}

TEST_F(Elastic, LeavingWorkerEndsBySigtermOfItsAgentOnly) {
    start_all({"a", "b"}, {kUnhurried});
    await_resumed({"a", "b"});
    agent_.page("b").leaving.store(worker_link::Leaving::at_boundary);
    const std::uint64_t before = agent_.page("b").step;
    terminate_as_a_scheduler(*programs_["b"]);
    EXPECT_TRUE(eventually([&] { return agent_.page("b").step > before + 2; }));
    programs_["b"]->signal(SIGTERM);
    EXPECT_EQ(programs_["b"]->wait(), 128 + SIGTERM) << output("b");
    rounds_.end({"a"});
    rounds_.assign({"a"});
    expect_undisturbed_ending({"a"});
}

TEST_F(Elastic, WorkerEndsWithItsAgentAndSaysWhy) {
    start_all({"a", "b"}, {kUnhurried});
    await_resumed({"a", "b"});
    agent_.hang_up("a");
    EXPECT_EQ(programs_["a"]->wait(), 1);
    EXPECT_NE(output("a").find("the agent that started this worker is gone"), std::string::npos)
        << output("a");
}

TEST_F(Elastic, StoppedWorkerOfAnOldRoundCannotOverwriteALaterCheckpoint) {
    const TemporaryDirectory folder;
    const std::string file = folder.path() + "/state";
    const std::vector<std::string> flags{"--step-ms=2", "--checkpoint=" + file,
                                         "--checkpoint-every=1", "--hang-at=20", "--fail-rank=0"};
    start_all({"a", "b"}, flags);
    EXPECT_TRUE(
        eventually([&] { return agent_.page("b").waiting == 1 && agent_.page("b").step == 20; }));
    rounds_.end({"b"});
    rounds_.assign({"b"});
    EXPECT_EQ(programs_["b"]->wait(), 0) << output("b");
    const std::string saved = read_file(file);
    agent_.end_round("a", rounds_.round() - 1, "it was stopped");
    programs_["a"]->signal(SIGCONT);
    EXPECT_EQ(agent_.await<Suspended>("a").round, rounds_.round() - 1);
    EXPECT_TRUE(read_file(file) == saved);
}

}  // namespace
}  // namespace regroup::testing
