// SPDX-License-Identifier: Apache-2.0
//
// `regroup status`, `drain` and `stop` against a running job, and against missing jobs and daemons.
#include <csignal>
#include <memory>
#include <pwd.h>
#include <unistd.h>

#include "tests/e2e/end_to_end.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

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
    /// Starts the command in the background.
    [[nodiscard]] std::unique_ptr<Program> begin(const Words& words,
                                                 const std::string& endpoint) const {
        return std::make_unique<Program>(ProgramSpec{
            Words{regroup_program()} + words + Words{"--endpoint=" + endpoint}, {}, ""});
    }
    [[nodiscard]] std::unique_ptr<Program> begin(const Words& words) const {
        return begin(words, rendezvous_.endpoint());
    }
    [[nodiscard]] std::unique_ptr<Program> start_node(unsigned number,
                                                      const Words& steps = {}) const {
        return start_node(number, rendezvous_.endpoint(), steps);
    }
    [[nodiscard]] std::unique_ptr<Program> start_node(unsigned number, const std::string& endpoint,
                                                      const Words& steps) const {
        return start_run(node(number, "1:2", endpoint) +
                         Words{"--nproc-per-node=2", "--last-call=30", "--max-restarts=4",
                               elastic_probe_program()} +
                         steps);
    }
    /// True once a rank has begun to save its state in that round.
    [[nodiscard]] bool saves(std::uint64_t round) const {
        return eventually([&] { return !marks("saving")[round].empty(); },
                          std::chrono::seconds(40));
    }
    /// The user name by which messages name the operator.
    [[nodiscard]] static std::string account() {
        const passwd* const entry = ::getpwuid(::getuid());
        return entry != nullptr ? entry->pw_name : "ann";
    }

    Rendezvous rendezvous_;
};

TEST_F(OperateCommand, OperatorsShowDrainAndStopARunningJob) {
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
                saying("job job: training, round 2, 4 ranks, step ", "  127.0.0.2  127.0.0.2",
                       "  0-1  ", "  2-3  ", " 1 of 4", "1 recovery took ",
                       "rank 3 on 127.0.0.3 was ended by SIGKILL"));
    const Said json = operate({"status", "--json"});
    EXPECT_EQ(json.code, 0);
    EXPECT_THAT(json.text, AllOf(HasSubstr("\"jobs\":["), HasSubstr("\"round\":2")));

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
    EXPECT_THAT(ended(*b), exits(75, "new memory"));
    ASSERT_THAT(await_marks("up", 2, 3), SizeIs(2)) << a->output();

    const Said stopped = operate({"stop", "--reason=enough"});
    EXPECT_EQ(stopped.code, 0);
    EXPECT_EQ(stopped.text, "job job is stopped on all its nodes\n");
    EXPECT_THAT(ended(*a), exits(1, "job job was stopped by " + account() + "@", "enough"));
    EXPECT_THAT(a->family(), IsEmpty());
    const Said again = operate({"stop"});
    EXPECT_EQ(again.code, 1);
    EXPECT_THAT(again.text, HasSubstr("job job has ended already"));
}

TEST_F(OperateCommand, DrainOfASharedNameDrainsAllItsNodesAndSaysSo) {
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

// ---- Drains that are waited for.

constexpr const char* kHasLeft = " has left job job at step ";

TEST_F(OperateCommand, WaitEndsWhenTheNodeHasLeftAndTellsItsStep) {
    auto a = start_node(1);
    auto b = start_node(2);
    ASSERT_THAT(await_marks("up", 4), SizeIs(4)) << a->output() << b->output();
    const Said drained = operate({"drain", "--wait", "--reason=new memory", "127.0.0.3"});
    EXPECT_EQ(drained.code, 0) << drained.text;
    const auto left = last_marks("left");
    ASSERT_THAT(left, SizeIs(2)) << drained.text;
    const Words lines = lines_of(drained.text);
    ASSERT_THAT(lines, SizeIs(2)) << drained.text;
    EXPECT_THAT(lines[0], HasSubstr("node 127.0.0.3 of job job leaves at its next step boundary"));
    EXPECT_THAT(lines[1], saying("node 127.0.0.3 (ranks 2-3)" + std::string(kHasLeft) +
                                     left.at(2).at("step") + " (drained: ",
                                 "is drained by " + account() + "@", "new memory"));
    EXPECT_EQ(b->wait(), 75) << b->output();
    // All workers of the last node save and leave.
    const Said last = operate({"drain", "--wait", "127.0.0.2"});
    EXPECT_EQ(last.code, 0) << last.text;
    EXPECT_THAT(last.text, HasSubstr("node 127.0.0.2 (ranks 0-1)" + std::string(kHasLeft)));
    EXPECT_EQ(a->wait(), 75) << a->output();
}

TEST_F(OperateCommand, WaitForSeveralNodesOfOneNameTellsTheStepOfEach) {
    auto a = start_node(2);
    auto b = start_node(2);
    ASSERT_THAT(await_marks("up", 4), SizeIs(4)) << a->output() << b->output();
    const Said drained = operate({"drain", "--wait", "127.0.0.3"});
    EXPECT_EQ(drained.code, 0) << drained.text;
    EXPECT_THAT(drained.text, saying("(ranks 0-1)" + std::string(kHasLeft),
                                     "(ranks 2-3)" + std::string(kHasLeft)));
    EXPECT_EQ(a->wait(), 75) << a->output();
    EXPECT_EQ(b->wait(), 75) << b->output();
}

TEST_F(OperateCommand, DrainContinuesAfterItsWaitTimesOutOrIsInterrupted) {
    auto a = start_node(1, {"save"});
    auto b = start_node(2, {"save"});
    ASSERT_THAT(await_marks("stepped", 4), SizeIs(4)) << a->output() << b->output();
    const auto patient = begin({"drain", "--wait", "127.0.0.3"});
    ASSERT_TRUE(saves(1)) << b->output();
    const Said impatient = operate({"drain", "--wait", "--wait-timeout=0.5", "127.0.0.3"});
    EXPECT_EQ(impatient.code, 1);
    EXPECT_THAT(impatient.text,
                HasSubstr("regroup drain: node 127.0.0.3 has not left within 500 ms "
                          "(--wait-timeout); it is still to leave"));
    const auto interrupted = begin({"drain", "--wait", "127.0.0.3"});
    ASSERT_TRUE(interrupted->prints("leaves at its next step boundary"));
    interrupted->signal(SIGINT);
    EXPECT_THAT(ended(*interrupted),
                exits(128 + SIGINT, "no longer waiting; the node leaves all the same"));
    EXPECT_TRUE(patient->running());
    release("disk");
    EXPECT_THAT(ended(*patient), exits(0, kHasLeft));
    EXPECT_EQ(b->wait(), 75) << b->output();
}

TEST_F(OperateCommand, WaitFailsIfTheNodeIsLostOrTheJobEndsFirst) {
    auto a = start_node(1, {"save"});
    auto b = start_node(2, {"save"});
    ASSERT_THAT(await_marks("stepped", 4), SizeIs(4)) << a->output() << b->output();
    const auto of_lost = begin({"drain", "--wait", "127.0.0.3"});
    ASSERT_TRUE(saves(1)) << b->output();
    b->signal(SIGKILL);
    EXPECT_THAT(ended(*of_lost), exits(1,
                                       "node 127.0.0.3 (ranks 2-3) was lost before it had "
                                       "left job job, after step "));
    ASSERT_THAT(await_marks("up", 2, 2), SizeIs(2)) << a->output();
    const auto of_stopped = begin({"drain", "--wait", "127.0.0.2"});
    ASSERT_TRUE(saves(2)) << a->output();
    EXPECT_EQ(operate({"stop", "--reason=enough"}).code, 0);
    EXPECT_THAT(ended(*of_stopped), exits(1,
                                          "node 127.0.0.2 (ranks 0-1) had not left when job "
                                          "job ended: enough"));
    release("disk");
}

TEST_F(OperateCommand, WaitGoesOnWithTheNextDaemonThatHasTheJob) {
    const Words flags{"--listen=127.0.0.1:" + std::to_string(unused_port()),
                      "--state=" + folder() + "/state"};
    auto daemon = std::make_unique<Rendezvous>(flags);
    const std::string endpoint = daemon->endpoint();
    auto a = start_node(1, endpoint, {"save"});
    auto b = start_node(2, endpoint, {"save"});
    ASSERT_THAT(await_marks("stepped", 4), SizeIs(4)) << a->output() << b->output();
    const auto waits = begin({"drain", "--wait", "127.0.0.3"}, endpoint);
    ASSERT_TRUE(saves(1)) << b->output();
    daemon->program().signal(SIGKILL);
    ASSERT_TRUE(waits->prints("lost the connection to the daemon; asking again"));
    daemon.reset();
    daemon = std::make_unique<Rendezvous>(flags);
    ASSERT_TRUE(b->prints("the daemon is back at")) << b->output();
    ASSERT_TRUE(waits->prints("the daemon is back; waiting again")) << waits->output();
    release("disk");
    EXPECT_THAT(ended(*waits), exits(0, kHasLeft));
    EXPECT_EQ(b->wait(), 75) << b->output();
}

TEST_F(OperateCommand, MistakesAndUnansweredRequestsAreReported) {
    const Said absent =
        regroup({"status", "--timeout=1", "--endpoint=127.0.0.1:" + std::to_string(unused_port())});
    EXPECT_EQ(absent.code, 3);
    EXPECT_THAT(absent.text,
                saying("regroup status: no daemon has answered within 1.0 s", "127.0.0.1:"));
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
