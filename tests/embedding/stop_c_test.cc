// SPDX-License-Identifier: Apache-2.0
//
// A plain loop in C that asks in each step whether to stop (stop.c), under the real launcher.
#include <csignal>
#include <set>

#include "tests/e2e/end_to_end.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

class StopC : public EndToEnd {
   protected:
    void expect_same_step(const Words& arguments) const {
        Program job = run(Words{"--standalone", "--nproc-per-node=3", STOP_C} + arguments);
        for (const char* const rank : {"rank 0 trains", "rank 1 trains", "rank 2 trains"}) {
            ASSERT_TRUE(job.prints(rank)) << job.output();
        }
        job.signal(SIGTERM);
        EXPECT_EQ(job.wait(), 75) << job.output();
        std::set<std::string> steps;
        std::size_t ranks = 0;
        for (const std::string& line : lines_of(job.output())) {
            if (const std::size_t at = line.find("stops at step "); at != line.npos) {
                steps.insert(line.substr(at));
                ++ranks;
            }
        }
        EXPECT_EQ(ranks, 3U) << job.output();
        EXPECT_THAT(steps, SizeIs(1)) << job.output();
    }
};

TEST_F(StopC, AllRanksStopAtTheSameStep) {
    expect_same_step({});
}

TEST_F(StopC, ProgramMayGiveItsOwnContext) {
    expect_same_step({"own"});
}

}  // namespace
}  // namespace regroup::testing
