// SPDX-License-Identifier: Apache-2.0
//
// Finished nodes leave at once, unless others need them. Stale workers of old rounds stay harmless.
#include <csignal>
#include <memory>

#include "tests/e2e/end_to_end.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

class RunDeparture : public EndToEnd {
   protected:
    [[nodiscard]] std::unique_ptr<Program> start(unsigned number, const Words& steps,
                                                 const std::string& nodes = "2",
                                                 const Words& flags = {}) const {
        return start_run(node(number, nodes, rendezvous_.endpoint()) + flags +
                         Words{probe_program()} + steps);
    }

    Rendezvous rendezvous_;
};

TEST_F(RunDeparture, FinishedNodeLeavesWhileOthersWork) {
    const Words steps{"mark=up", "rank=0?await=finish"};
    auto busy = start(1, steps);
    auto done = start(2, steps);
    EXPECT_EQ(done->wait(), 0) << done->output();
    EXPECT_TRUE(busy->running()) << busy->output();
    release("finish");
    EXPECT_THAT(ended(*busy), exits(0, Not(HasSubstr("left"))));
}

TEST_F(RunDeparture, StoreOutlivesItsLastReader) {
    // Rank 0, whose agent serves the store, is done long before rank 1 reads from it.
    auto server = start(1, {"mark=up", "exit=0"});
    auto reader = start(2, {"mark=up", "await=read", "set=late", "get=late"});
    ASSERT_THAT(await_marks("up", 2), SizeIs(2)) << server->output() << reader->output();
    EXPECT_FALSE(server->wait(std::chrono::milliseconds(300))) << server->output();
    release("read");
    EXPECT_THAT(ended(*reader), exits(0, "got late"));
    EXPECT_EQ(server->wait(), 0) << server->output();
}

TEST_F(RunDeparture, FailureAfterADepartureEndsAtOnceAndSaysWhy) {
    const Words steps{"mark=up", "rank=0?await=fail", "rank=0?exit=3"};
    const Words flags{"--max-restarts=5"};
    auto failing = start(1, steps, "2", flags);
    auto done = start(2, steps, "2", flags);
    EXPECT_EQ(done->wait(), 0) << done->output();
    release("fail");
    EXPECT_THAT(ended(*failing), exits(3, "127.0.0.3 has finished and left"));
}

TEST_F(RunDeparture, ElasticJobRestartsWithTheNodesThatAreLeft) {
    const Words steps{"mark=up", "rank=0,round=1?await=fail", "rank=0,round=1?exit=3"};
    const Words flags{"--max-restarts=1", "--last-call=60"};
    auto failing = start(1, steps, "1:2", flags);
    auto done = start(2, steps, "1:2", flags);
    EXPECT_EQ(done->wait(), 0) << done->output();
    release("fail");
    EXPECT_EQ(failing->wait(), 0) << failing->output();
    EXPECT_EQ(mark("up", 2).at("WORLD_SIZE"), "1");
}

// A worker that outlives its round: its node is frozen and lost, and then only the worker
// continues.
TEST_F(RunDeparture, StaleWorkerCannotReachTheStoreOfTheNewRound) {
    const Words steps{"round=1?set=old",
                      "mark=up",
                      "rank=1,round=1?await=stale",
                      "rank=1,round=1?try_store=old",
                      "round=2?set=new",
                      "mark=second",
                      "await=finish"};
    const Words flags{"--heartbeat-timeout=8", "--last-call=60"};
    auto survivor = start(1, steps, "1:2", flags);
    auto frozen = start(2, steps, "1:2", flags);
    const auto up = await_marks("up", 2);
    ASSERT_THAT(up, SizeIs(2)) << survivor->output() << frozen->output();
    const pid_t stale = pid_of(up.at(1));
    const std::vector<pid_t> family = frozen->family();
    for (const pid_t pid : family) {
        ::kill(pid, SIGSTOP);
    }
    ASSERT_THAT(await_marks("second", 1, 2), SizeIs(1)) << survivor->output();
    ASSERT_NE(mark("up", 2).at("MASTER_PORT"), "");
    ::kill(stale, SIGCONT);
    release("stale");
    EXPECT_TRUE(eventually([&] { return !mark("refused", 1, 1).empty(); })) << survivor->output();
    EXPECT_THAT(marks("reached"), IsEmpty());
    for (const pid_t pid : family) {
        ::kill(pid, SIGCONT);
    }
    EXPECT_TRUE(eventually([&] { return !is_alive(stale); }));
    release("finish");
    EXPECT_EQ(survivor->wait(), 0) << survivor->output();
}

}  // namespace
}  // namespace regroup::testing
