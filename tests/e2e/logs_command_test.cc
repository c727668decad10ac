// SPDX-License-Identifier: Apache-2.0
//
// `regroup logs`: the output of a rank on another node, and over a restart.
#include <csignal>
#include <fstream>
#include <memory>

#include "tests/e2e/end_to_end.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

class LogsCommand : public EndToEnd {
   protected:
    /// Two nodes with two workers each, which say their rank, the round and the file `more`.
    void start(const Words& flags = {"--log-dir=runs"}) {
        for (const unsigned number : {1U, 2U}) {
            nodes_.push_back(std::make_unique<Program>(ProgramSpec{
                Words{regroup_program(), "run"} + node(number, "2", rendezvous_.endpoint()) +
                    Words{"--nproc-per-node=2", "--max-restarts=3"} + flags +
                    Words{"sh", "-c",
                          "for i in 1 2 3; do echo line $i of $RANK in $REGROUP_ROUND; done; "
                          "echo \"error of $RANK\" >&2; echo $$ >pid$RANK; : >up$RANK; "
                          "while :; do test -e more && echo more of $RANK; sleep 0.2; done"},
                {},
                folder()}));
        }
        for (const char* rank : {"0", "1", "2", "3"}) {
            ASSERT_TRUE(eventually([&] { return has("up", rank); })) << nodes_[0]->output();
        }
    }
    [[nodiscard]] bool has(const std::string& name, const std::string& rank) const {
        return std::ifstream(folder() + "/" + name + rank).good();
    }
    [[nodiscard]] std::unique_ptr<Program> logs(const Words& words) const {
        return std::make_unique<Program>(
            ProgramSpec{Words{regroup_program(), "logs"} + words +
                            Words{"--endpoint=" + rendezvous_.endpoint()},
                        {},
                        folder()});
    }

    Rendezvous rendezvous_;
    std::vector<std::unique_ptr<Program>> nodes_;
};

TEST_F(LogsCommand, ShowsTheLastLinesOfARankWhereverItRuns) {
    start();
    for (const char* rank : {"0", "3"}) {
        const auto shown = logs({"job", rank});
        EXPECT_THAT(ended(*shown),
                    exits(0, "line 1 of " + std::string(rank) + " in 1\n",
                          "error of " + std::string(rank) + "\n", "round_1/rank0000"));
    }
    const auto last = logs({"--lines=1", "--stream=out", "3"});
    EXPECT_THAT(ended(*last), exits(0, "line 3 of 3", Not(HasSubstr("line 2 of 3")),
                                    Not(HasSubstr("error of 3"))));
}

TEST_F(LogsCommand, FollowsARankOverARestartUntilTheJobEnds) {
    start();
    const auto follower = logs({"--follow", "3"});
    ASSERT_TRUE(follower->prints("line 3 of 3 in 1")) << follower->output();
    std::ofstream(folder() + "/more").close();
    ASSERT_TRUE(follower->prints("more of 3")) << follower->output();
    std::ifstream pid(folder() + "/pid1");
    int victim = 0;
    pid >> victim;
    ASSERT_GT(victim, 0);
    ::kill(victim, SIGKILL);
    ASSERT_TRUE(follower->prints("line 1 of 3 in 2")) << follower->output();
    Program stop({{regroup_program(), "stop", "--endpoint=" + rendezvous_.endpoint()}, {}, ""});
    EXPECT_EQ(stop.wait(), 0);
    EXPECT_EQ(follower->wait(), 0) << follower->output();
}

TEST_F(LogsCommand, SaysWhyThereIsNothingToShow) {
    const auto no_job = logs({"0"});
    EXPECT_EQ(no_job->wait(), 1);
    EXPECT_EQ(no_job->output(), "regroup logs: this daemon has no job\n");
    start({"--log-dir=/dev/null"});
    const auto no_rank = logs({"7"});
    EXPECT_EQ(no_rank->wait(), 1);
    EXPECT_EQ(no_rank->output(), "regroup logs: job job has no rank 7 now\n");
    const auto no_file = logs({"1"});
    EXPECT_THAT(ended(*no_file), exits(1, "--log-dir", "127.0.0.2"));
    for (const Words& words :
         {Words{}, Words{"x"}, Words{"1", "2", "3"}, Words{"--stream=x", "1"}}) {
        const auto mistake = logs(words);
        EXPECT_THAT(ended(*mistake), exits(2, Not(IsEmpty())));
    }
}

}  // namespace
}  // namespace regroup::testing
