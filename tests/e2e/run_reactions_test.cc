// SPDX-License-Identifier: Apache-2.0
//
// The reaction of the launcher to the exit codes of workers.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>

#include "tests/e2e/end_to_end.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

struct Row {
    std::string name;
    Words flags;
    Words steps;          ///< Of the workers, in every round.
    int code = 0;         ///< Of the launcher.
    unsigned rounds = 1;  ///< Number of rounds that begin.
    std::string said;
};

std::ostream& operator<<(std::ostream& out, const Row& row) {
    return out << row.name;
}

class RunReactionsOf : public EndToEnd {};

class RunReactions : public EndToEnd, public ::testing::WithParamInterface<Row> {};

TEST_P(RunReactions, ExitCodeChoosesTheReaction) {
    const Row& row = GetParam();
    Program job = run_probe(Words{"--standalone", "--restart-delay=0"} + row.flags,
                            Words{"mark=up"} + row.steps);
    EXPECT_EQ(job.wait(), row.code) << job.output();
    EXPECT_EQ(marks("up").size(), row.rounds) << job.output();
    EXPECT_THAT(job.output(), HasSubstr(row.said));
    EXPECT_THAT(job.family(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(
    Rows, RunReactions,
    ::testing::Values(
        Row{"Usage", {"--max-restarts=3"}, {"exit=2"}, 2, 1, "--on-exit 2=fail"},
        Row{"ExUsage", {"--max-restarts=3"}, {"exit=64"}, 64, 1, "64"},
        Row{"ExConfig", {"--max-restarts=3"}, {"exit=78"}, 78, 1, "78"},
        Row{"NotExecutable", {"--max-restarts=3"}, {"exit=126"}, 126, 1, "126"},
        Row{"NotThere", {"--max-restarts=3"}, {"exit=127"}, 127, 1, "127"},
        Row{"TemporaryCostsNothing", {}, {"round=1?exit=75", "round=2?exit=75"}, 0, 3, "round 3"},
        Row{"TemporaryForEver", {"--no-progress=3"}, {"exit=75"}, 4, 3, "progress"},
        Row{"AnyOther", {"--max-restarts=2"}, {"exit=3"}, 3, 3, "round 3"},
        Row{"Changed",
            {"--max-restarts=3", "--on-exit=3=fail"},
            {"exit=3"},
            3,
            1,
            "--on-exit 3=fail"},
        Row{"NoneMeansAnything",
            {"--max-restarts=1", "--on-exit=none"},
            {"exit=2"},
            2,
            2,
            "round 2"},
        Row{"UserError", {"--max-restarts=3"}, {"fatal=user_error"}, 78, 1, "no such data set"},
        Row{"Retry", {}, {"round=1?fatal=retry"}, 0, 2, "no such data set"}),
    [](const ::testing::TestParamInfo<Row>& info) { return info.param.name; });

TEST_F(RunReactionsOf, ProgramThatCannotRunIsNotRestarted) {
    // The script exists, its interpreter does not. Only the kernel finds that out.
    std::ofstream(folder() + "/script") << "#!/no/such/interpreter\n";
    ::chmod((folder() + "/script").c_str(), 0755);
    Program job = run({"--standalone", "--max-restarts=3", folder() + "/script"});
    const auto code = job.wait();
    EXPECT_TRUE(code == 126 || code == 127 || code == 2) << job.output();
    EXPECT_THAT(job.output(), saying("script", Not(HasSubstr("round 2"))));
}

// A copy of the probe that fails in round 1 when the test says so, and then finishes.
class RunStartFailures : public EndToEnd {
   protected:
    RunStartFailures() { std::filesystem::copy(probe_program(), program_); }

    [[nodiscard]] Program start() const {
        return run({"--standalone", "--max-restarts=5", "--restart-delay=0.2", program_, "mark=up",
                    "round=1?await=fail", "round=1?exit=3"},
                   {"PROBE_DIR=" + folder()});
    }
    void expect_recovery(Program& job) const {
        EXPECT_EQ(job.wait(), 0) << job.output();
        // The recovery is told once, when the program runs.
        std::size_t told = 0;
        for (const std::string& line : lines_of(job.output())) {
            told += line.find("restarted in ") != std::string::npos ? 1U : 0U;
        }
        EXPECT_EQ(told, 1U) << job.output();
    }

    const std::string program_ = folder() + "/program";
};

TEST_F(RunStartFailures, ProgramThatIsBeingWrittenIsTriedAgain) {
    Program job = start();
    ASSERT_EQ(await_marks("up", 1).size(), 1U) << job.output();
    std::filesystem::copy(program_, folder() + "/next");
    std::ofstream writer(folder() + "/next", std::ios::app);
    std::filesystem::rename(folder() + "/next", program_);
    release("fail");
    EXPECT_TRUE(job.prints("could not start: ")) << job.output();
    EXPECT_THAT(job.output(), HasSubstr("Text file busy"));
    writer.close();
    expect_recovery(job);
}

TEST_F(RunStartFailures, MissingProgramIsTriedAgainIfItHasRunInTheJob) {
    Program job = start();
    ASSERT_EQ(await_marks("up", 1).size(), 1U) << job.output();
    std::filesystem::rename(program_, folder() + "/away");
    release("fail");
    EXPECT_TRUE(job.prints("could not start: ")) << job.output();
    std::filesystem::rename(folder() + "/away", program_);
    expect_recovery(job);
}

TEST_F(RunReactionsOf, FailingNodeIsReplacedByAStandby) {
    const Rendezvous rendezvous;
    const Words flags{"--last-call=0"};
    Program good =
        run_probe(node(1, "2:2", rendezvous.endpoint()) + flags, {"mark=up", "await=finish"});
    ASSERT_TRUE(good.prints("waiting: ")) << good.output();
    Program bad = run_probe(node(2, "2:2", rendezvous.endpoint()) + flags,
                            {"mark=up", "await=break", "fatal=bad_node"});
    ASSERT_EQ(await_marks("up", 2).size(), 2U) << good.output();
    Program standby =
        run_probe(node(3, "2:2", rendezvous.endpoint()) + flags, {"mark=up", "await=finish"});
    ASSERT_TRUE(standby.prints("waiting")) << standby.output();
    release("break");
    ASSERT_EQ(await_marks("up", 2, 2).size(), 2U) << good.output() << bad.output();
    // A quarantined node is told the reason and the failure, though it is in no further round.
    EXPECT_TRUE(bad.prints("node 127.0.0.3 is quarantined for ")) << bad.output();
    EXPECT_THAT(bad.output(), HasSubstr("failure report of round 1"));
    release("finish");
    EXPECT_EQ(good.wait(), 0) << good.output();
    EXPECT_EQ(standby.wait(), 0) << standby.output();
    EXPECT_THAT(bad.output(), HasSubstr("no such data set"));
    EXPECT_THAT(good.output(),
                HasSubstr("exited with code 76: there is no such data set"));  // The cause.
    EXPECT_THAT(good.output(), HasSubstr("standby 127.0.0.4 took slot 1"));
}

TEST_F(RunReactionsOf, ElasticWorkerThatExitsWithZeroBeforeItFinishesHasFailed) {
    Program job = run({"--standalone", "--nproc-per-node=3", "--max-restarts=0",
                       elastic_probe_program(), "desert"});
    ASSERT_EQ(await_marks("up", 3).size(), 3U) << job.output();
    release("throw");
    EXPECT_THAT(ended(job),
                exits(1, "exited with code 0 before its training was finished; no restarts"));
    EXPECT_EQ(marks("up").size(), 1U);
}

/// Three rounds without progress end the job long before its restarts are used.
const Words kThreeBarrenRounds{"--standalone", "--nproc-per-node=2", "--max-restarts=100",
                               "--restart-delay=0", "--no-progress=3"};

TEST_F(RunReactionsOf, RoundsWithoutAnyCommittedStepEndTheJob) {
    release("throw");
    release("core");
    Program job = run(kThreeBarrenRounds + Words{elastic_probe_program(), "throw"});
    EXPECT_THAT(ended(job), exits(4,
                                  "exited with code 1: no such shard; 3 rounds in a row "
                                  "ended without progress (--no-progress 3)"));
    EXPECT_EQ(marks("up").size(), 3U) << job.output();
    EXPECT_THAT(job.family(), IsEmpty());
}

TEST_F(RunReactionsOf, RoundsWithoutANewCommittedStepEndTheJob) {
    Program job = run(kThreeBarrenRounds + Words{elastic_probe_program(), "throw"});
    // The first round has committed some steps.
    ASSERT_TRUE(eventually([&] { return std::atoi(read_file(folder() + "/step").c_str()) > 3; }))
        << job.output();
    release("core");
    release("throw");
    EXPECT_THAT(
        ended(job),
        exits(4, ContainsRegex("exited with code 1: no such shard; 3 rounds in a row ended without "
                               "one more committed step after step [1-9][0-9]* "
                               "\\(--no-progress 3\\)")));
    EXPECT_EQ(marks("up").size(), 4U) << job.output();
    EXPECT_THAT(job.family(), IsEmpty());
}

}  // namespace
}  // namespace regroup::testing
