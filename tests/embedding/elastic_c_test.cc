// SPDX-License-Identifier: Apache-2.0
//
// A program in C that trains elastically (elastic.c), under the real launcher.
#include <csignal>

#include "tests/e2e/end_to_end.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

class ElasticC : public EndToEnd {
   protected:
    [[nodiscard]] Program start(const std::string& way) const {
        return run(Words{"--standalone", "--nproc-per-node=3", "--max-restarts=3", ELASTIC_C, way,
                         folder() + "/" + way + ".ckpt"});
    }
    /// The ranks' lines about their results.
    [[nodiscard]] static Words results(const Program& job) {
        Words found;
        for (const std::string& line : lines_of(job.output())) {
            if (const std::size_t at = line.find("result "); at != line.npos) {
                found.push_back(line.substr(at));
            }
        }
        return found;
    }
};

TEST_F(ElasticC, KilledWorkersDoNotChangeTheResult) {
    Program quiet = start("quiet");
    ASSERT_EQ(quiet.wait(), 0) << quiet.output();
    const Words expected = results(quiet);
    ASSERT_THAT(expected, SizeIs(3)) << quiet.output();
    ASSERT_THAT(expected, Each(AllOf(expected.front(), HasSubstr(" after 120, seen 120: abcd"))));

    Program job = start("kill");
    ASSERT_EQ(job.wait(), 0) << job.output();
    EXPECT_THAT(job.output(), saying("was ended by SIGKILL", "round 3 of rank 1 of 3 from step 80",
                                     "round 3 of rank 0 of 3 from step 80"));
    EXPECT_EQ(results(job), expected) << job.output();
    EXPECT_TRUE(std::filesystem::exists(folder() + "/kill.ckpt"));
}

TEST_F(ElasticC, NodeThatLeavesSavesItsState) {
    Program job = start("leave");
    ASSERT_TRUE(job.prints("round 1 of rank 2 of 3")) << job.output();
    job.signal(SIGTERM);
    EXPECT_EQ(job.wait(), 75) << job.output();
    EXPECT_THAT(job.output(), HasSubstr("with time: 1, "));
    EXPECT_TRUE(std::filesystem::exists(folder() + "/leave.ckpt"));
}

TEST_F(ElasticC, FailureOfACallbackEndsTheRankWithItsSentence) {
    Program job =
        run({"--standalone", "--nproc-per-node=2", ELASTIC_C, "shard", folder() + "/shard.ckpt"});
    EXPECT_EQ(job.wait(), 1) << job.output();
    EXPECT_THAT(job.output(), HasSubstr("elastic_c: invalid_argument: no such shard"));
}

TEST_F(ElasticC, ObjectsOfAnEarlierRoundMustBeFreed) {
    Program job = start("keep");
    EXPECT_NE(job.wait(), 0) << job.output();
    EXPECT_THAT(job.output(), HasSubstr("group of an earlier round still exists"));
}

TEST_F(ElasticC, FatalReportEndsTheJobWithoutARestart) {
    Program job = start("fatal");
    EXPECT_EQ(job.wait(), 78) << job.output();
    EXPECT_THAT(job.output(),
                HasSubstr("fatal (trying again cannot help): there is no such data set"));
}

}  // namespace
}  // namespace regroup::testing
