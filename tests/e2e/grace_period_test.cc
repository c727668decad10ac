// SPDX-License-Identifier: Apache-2.0
//
// --shutdown-timeout is the grace period on every path on which workers are ended.
#include <csignal>
#include <functional>
#include <memory>

#include "tests/e2e/end_to_end.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

// Workers that ignore SIGTERM in round 1, on up to two nodes.
class GracePeriod : public EndToEnd {
   protected:
    [[nodiscard]] std::unique_ptr<Program> start(unsigned number, const Words& flags,
                                                 const Words& steps) const {
        return start_run(node(number, "1:2", rendezvous_.endpoint()) +
                         Words{"--last-call=60", "--grow-after=0", "--max-restarts=1"} + flags +
                         Words{probe_program()} + steps);
    }

    Rendezvous rendezvous_;
};

/// One cause that makes node 1 end its stubborn workers.
struct Path {
    std::string name;
    Words more_steps;  ///< Further steps of the workers in round 1.
    unsigned nodes = 2;
    std::function<void(const GracePeriod& test, Program& first, Program& second)> set_off;
    bool goes_on = true;  ///< The job continues in a round 2.
};

std::ostream& operator<<(std::ostream& out, const Path& path) {
    return out << path.name;
}

const std::vector<Path>& paths() {
    static const std::vector<Path> all{
        {"Stop",
         {},
         2,
         [](const GracePeriod&, Program& first, Program&) { first.signal(SIGTERM); },
         false},
        {"CtrlC",
         {},
         2,
         [](const GracePeriod&, Program& first, Program&) { first.signal(SIGINT); },
         false},
        {"RestartAfterAFailure",
         {"rank=1,round=1?await=fail", "rank=1,round=1?exit=3"},
         2,
         [](const GracePeriod&, Program&, Program&) {},
         true},
        {"LossOfAPeer",
         {},
         2,
         [](const GracePeriod&, Program&, Program& second) { second.signal(SIGKILL); },
         true},
        {"DrainOfAPeer",
         {},
         2,
         [](const GracePeriod&, Program&, Program& second) { second.signal(SIGTERM); },
         true},
    };
    return all;
}

class GracePeriodOf : public GracePeriod, public ::testing::WithParamInterface<Path> {
   protected:
    static Words steps() {
        Words all{"round=1?ignore=15", "round=1?ignore=2", "mark=up"};
        all = all + GetParam().more_steps;
        return all + Words{"round=1?hold", "await=finish"};
    }
};

TEST_P(GracePeriodOf, WorkersAreKilledAtTheShutdownTimeout) {
    const Words quick{"--shutdown-timeout=0.5"};
    auto first = start(1, quick, steps());
    auto second = start(2, quick, steps());
    ASSERT_THAT(await_marks("up", 2), SizeIs(2)) << first->output() << second->output();
    const pid_t stubborn = pid_of(mark("up", 1, 0));
    release("fail");
    GetParam().set_off(*this, *first, *second);
    // Far below the default of 30 s. The worker was killed, it did not end by itself.
    EXPECT_TRUE(eventually([&] { return !is_alive(stubborn); }, std::chrono::seconds(20)));
    EXPECT_TRUE(first->prints("killing the workers of round 1")) << first->output();
    release("finish");
    const auto code = first->wait();
    EXPECT_EQ(code == 0, GetParam().goes_on) << first->output();
}

TEST_P(GracePeriodOf, LauncherWaitsForTheShutdownTimeout) {
    const Words patient{"--shutdown-timeout=1000"};
    auto first = start(1, patient, steps());
    auto second = start(2, patient, steps());
    ASSERT_THAT(await_marks("up", 2), SizeIs(2)) << first->output() << second->output();
    const pid_t stubborn = pid_of(mark("up", 1, 0));
    release("fail");
    GetParam().set_off(*this, *first, *second);
    EXPECT_TRUE(first->prints("stopping")) << first->output();
    // Long enough for an early SIGKILL to show.
    EXPECT_FALSE(eventually([&] { return !is_alive(stubborn); }, std::chrono::milliseconds(300)));
    // A signal shortens the grace period. Where a signal was the cause itself, the second one does.
    first->signal(SIGTERM);
    first->signal(SIGTERM);
    EXPECT_TRUE(eventually(
        [&] {
            first->signal(SIGTERM);
            return first->wait(std::chrono::milliseconds(100)).has_value();
        },
        std::chrono::seconds(20)))
        << first->output();
    EXPECT_FALSE(is_alive(stubborn));
}

INSTANTIATE_TEST_SUITE_P(Paths, GracePeriodOf, ::testing::ValuesIn(paths()),
                         [](const auto& named) { return named.param.name; });

TEST_F(GracePeriod, GrowthWaitsForTheShutdownTimeoutToo) {
    const Words quick{"--shutdown-timeout=0.5"};
    const Words steps{"round=1?ignore=15", "mark=up", "round=1?hold", "await=finish"};
    auto first = start_run(node(1, "1:2", rendezvous_.endpoint()) +
                           Words{"--last-call=0", "--grow-after=0", "--max-restarts=1"} + quick +
                           Words{probe_program()} + steps);
    ASSERT_THAT(await_marks("up", 1), SizeIs(1)) << first->output();
    Program second = run(node(2, "1:2", rendezvous_.endpoint()) +
                         Words{"--last-call=0", "--grow-after=0", "--max-restarts=1"} + quick +
                         Words{probe_program()} + steps);
    EXPECT_THAT(await_marks("up", 2, 2), SizeIs(2)) << first->output() << second.output();
    EXPECT_THAT(first->output(), HasSubstr("killing the workers of round 1"));
    release("finish");
    EXPECT_EQ(first->wait(), 0) << first->output();
    EXPECT_EQ(second.wait(), 0) << second.output();
}

TEST_F(GracePeriod, SigtermToAllNodesEndsTheJobWithItsCode) {
    auto first = start(1, {}, {"mark=up", "hold"});
    auto second = start(2, {}, {"mark=up", "hold"});
    ASSERT_THAT(await_marks("up", 2), SizeIs(2)) << first->output() << second->output();
    first->signal(SIGTERM);
    second->signal(SIGTERM);
    for (Program* each : {first.get(), second.get()}) {
        EXPECT_THAT(ended(*each), exits(128 + SIGTERM, Not(HasSubstr("failed"))));
    }
}

TEST_F(GracePeriod, WorkersGetTheSignalThatTheLauncherGot) {
    auto first = start(1, {"--last-call=0"}, {"ignore=15", "mark=up", "hold"});
    ASSERT_THAT(await_marks("up", 1), SizeIs(1)) << first->output();
    first->signal(SIGINT);  // The workers ignore SIGTERM.
    EXPECT_THAT(ended(*first), exits(128 + SIGINT, Not(HasSubstr("killing"))));
}

}  // namespace
}  // namespace regroup::testing
