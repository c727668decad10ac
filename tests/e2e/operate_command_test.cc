// SPDX-License-Identifier: Apache-2.0
//
// `regroup status`, `drain` and `stop` against a job that runs, and against what is not there.
#include <csignal>
#include <memory>
#include <pwd.h>
#include <unistd.h>

#include "tests/e2e/end_to_end.h"

namespace regroup::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

struct Said {
    int code = -1;
    std::string text;
};

class OperateCommand : public EndToEnd {
   protected:
    [[nodiscard]] static Said regroup(const Words& words) {
        Program program({Words{regroup_program()} + words, {"LOGNAME=ann"}, ""});
        const int code = program.wait().value_or(-1);
        return {code, program.output()};
    }
    [[nodiscard]] Said operate(const Words& words) const {
        return regroup(words + Words{"--endpoint=" + rendezvous_.endpoint()});
    }
    [[nodiscard]] std::unique_ptr<Program> start_node(unsigned number,
                                                      const Words& flags = {}) const {
        return std::make_unique<Program>(ProgramSpec{
            Words{regroup_program(), "run"} + node(number, "1:2", rendezvous_.endpoint()) +
                Words{"--nproc-per-node=2", "--last-call=30", "--max-restarts=4"} + flags +
                Words{elastic_probe_program()},
            {"PROBE_DIR=" + folder()},
            folder()});
    }

    /// The account by which operators are named.
    [[nodiscard]] static std::string account() {
        const passwd* const entry = ::getpwuid(::getuid());
        return entry != nullptr ? entry->pw_name : "ann";
    }

    Rendezvous rendezvous_;
};

TEST_F(OperateCommand, ARunningJobIsShownDrainedAndStopped) {
    EXPECT_EQ(operate({"status"}).text, "no jobs\n");
    auto a = start_node(1);
    auto b = start_node(2);
    const auto first = await_marks("up", 4);
    ASSERT_THAT(first, SizeIs(4)) << a->output() << b->output();
    ::kill(pid_of(first.at(3)), SIGKILL);
    ASSERT_THAT(await_marks("up", 4, 2), SizeIs(4)) << a->output();
    ASSERT_TRUE(a->prints("recovered in")) << a->output();

    const Said status = operate({"status"});
    EXPECT_EQ(status.code, 0);
    EXPECT_THAT(status.text,
                AllOf(HasSubstr("job job: running, round 2, 4 ranks, step "),
                      HasSubstr("  127.0.0.2  127.0.0.2"), HasSubstr("  0-1  "),
                      HasSubstr("  2-3  "), HasSubstr(" 1 of 4"), HasSubstr("recoveries: 1, "),
                      HasSubstr("rank 3 on 127.0.0.3 was ended by SIGKILL")));
    const Said top = operate({"top", "--job=job"});
    EXPECT_EQ(top.code, 0);
    EXPECT_THAT(top.text, HasSubstr("job job: running, round 2, 4 ranks"));
    const Said json = operate({"status", "--json"});
    EXPECT_EQ(json.code, 0);
    EXPECT_THAT(json.text, AllOf(HasSubstr("{\"jobs\":["), HasSubstr("\"round\":2")));

    const Said no_node = operate({"drain", "127.0.0.9"});
    EXPECT_EQ(no_node.code, 1);
    EXPECT_EQ(no_node.text,
              "regroup drain: job job has no node 127.0.0.9; regroup status lists those "
              "that it has\n");
    for (const Words& words : {Words{"status"}, Words{"stop"}, Words{"drain", "127.0.0.3"}}) {
        const Said no_job = operate(words + Words{"--job=jbo"});
        EXPECT_EQ(no_job.code, 1);
        EXPECT_EQ(no_job.text,
                  "regroup " + words.front() + ": there is no job jbo; the daemon has job\n");
    }

    const Said drained = operate({"drain", "--reason=new memory", "127.0.0.3"});
    EXPECT_EQ(drained.code, 0) << drained.text;
    EXPECT_THAT(drained.text, HasSubstr("node 127.0.0.3 of job job leaves"));
    EXPECT_EQ(b->wait(), 75) << b->output();
    EXPECT_THAT(b->output(), HasSubstr("new memory"));
    ASSERT_THAT(await_marks("up", 2, 3), SizeIs(2)) << a->output();

    const Said stopped = operate({"stop", "--reason=enough"});
    EXPECT_EQ(stopped.code, 0);
    EXPECT_EQ(stopped.text, "job job is stopped on all its nodes\n");
    EXPECT_EQ(a->wait(), 1) << a->output();
    EXPECT_THAT(a->output(),
                AllOf(HasSubstr("job job was stopped by " + account() + "@"), HasSubstr("enough")));
    EXPECT_THAT(a->family(), IsEmpty());
    const Said again = operate({"stop"});
    EXPECT_EQ(again.code, 1);
    EXPECT_THAT(again.text, HasSubstr("job job has ended already"));
}

TEST_F(OperateCommand, ADrainTellsThatSeveralNodesHaveTheNameAndAllOfThemLeave) {
    auto a = start_node(2);
    auto b = start_node(2);
    ASSERT_THAT(await_marks("up", 4), SizeIs(4)) << a->output() << b->output();
    const Said drained = operate({"drain", "127.0.0.3"});
    EXPECT_EQ(drained.code, 0);
    EXPECT_EQ(drained.text,
              "the 2 nodes of the name 127.0.0.3 of job job leave at their next step boundary, or "
              "at once if their workers do not keep their processes\n");
    EXPECT_EQ(a->wait(), 75) << a->output();
    EXPECT_EQ(b->wait(), 75) << b->output();
}

TEST_F(OperateCommand, MistakesAndSilenceAreTold) {
    const Said absent =
        regroup({"status", "--timeout=1", "--endpoint=127.0.0.1:" + std::to_string(unused_port())});
    EXPECT_EQ(absent.code, 3);
    EXPECT_THAT(absent.text, AllOf(HasSubstr("regroup status: no daemon has answered within 1.0 s"),
                                   HasSubstr("127.0.0.1:")));
    const Said none = operate({"drain", "a"});
    EXPECT_EQ(none.code, 1);
    EXPECT_EQ(none.text, "regroup drain: this daemon has no job\n");
    const Said not_there = operate({"status", "--job=jbo"});
    EXPECT_EQ(not_there.code, 1);
    EXPECT_EQ(not_there.text, "regroup status: there is no job jbo; the daemon has none\n");
    const Said nobody = operate({"drain"});
    EXPECT_EQ(nobody.code, 2);
    EXPECT_THAT(nobody.text, HasSubstr("needs the NODE that is to leave"));
    EXPECT_EQ(operate({"stop", "job"}).code, 2);
    const Said endpoint = regroup({"status", "--endpoint=a:b:c"});
    EXPECT_EQ(endpoint.code, 2);
    EXPECT_THAT(lines_of(endpoint.text), SizeIs(1));
    EXPECT_THAT(endpoint.text, HasSubstr("--endpoint 'a:b:c'"));
}

}  // namespace
}  // namespace regroup::testing
