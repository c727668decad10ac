// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "agent/watch/progress_watch.h"
#include "rendezvous/core/hang_culprit.h"

namespace regroup::agent {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using worker_link::Phase;

constexpr Duration kInterval = milliseconds(500);

// Two training workers on a node. A step takes at most a second.
class ProgressWatchTest : public ::testing::Test {
   protected:
    ProgressWatchTest() {
        for (std::uint32_t i = 0; i < 2; ++i) {
            WorkerLook look;
            look.local_rank = i;
            look.rank = 4 + i;
            look.pid = 100 + i;
            look.phase = Phase::training;
            look.round = 2;
            look.step = 40;
            looks.push_back(look);
        }
        pass(kInterval);
        commit(0);
        commit(1);
    }

    void commit(std::size_t worker) {
        looks[worker].beats += 1;
        looks[worker].step += 1;
        looks[worker].longest = seconds(1);
    }
    void enter(std::size_t worker, std::string name, Duration longest) {
        looks[worker].beats += 1;
        looks[worker].phase = Phase::section;
        looks[worker].section = std::move(name);
        looks[worker].longest = longest;
    }
    void wait_in(std::size_t worker, std::string collective) {
        looks[worker].operations += 1;
        looks[worker].waiting = true;
        looks[worker].section = std::move(collective);
    }

    // Looks at intervals. Returns the last result.
    std::optional<rendezvous::Hang> pass(Duration time, ProgressWatch* which = nullptr) {
        std::optional<rendezvous::Hang> hang;
        for (Duration t{}; t < time; t += kInterval) {
            now += kInterval;
            hang = (which != nullptr ? *which : watch).look(now, looks, 2);
        }
        return hang;
    }

    Instant now{seconds(1000)};
    std::vector<WorkerLook> looks;
    ProgressWatch watch{HangLimits(), kInterval};
};

TEST_F(ProgressWatchTest, StepThatTakesLongerThanTheFloorHangs) {
    EXPECT_FALSE(pass(milliseconds(10500)));
    const auto hang = pass(seconds(1));
    ASSERT_TRUE(hang);
    EXPECT_EQ(hang->rank, 4U);
    EXPECT_FALSE(hang->shared);
    EXPECT_EQ(hang->text, "rank 4 has been in step 41 for 11 s (limit 10 s)");
}

TEST_F(ProgressWatchTest, SlowStepsRaiseTheLimit) {
    looks[0].longest = looks[1].longest = seconds(6);
    EXPECT_FALSE(pass(seconds(30)));
    const auto hang = pass(seconds(1));
    ASSERT_TRUE(hang);
    EXPECT_EQ(hang->text, "rank 4 has been in step 41 for 30 s (limit 30 s)");
}

TEST_F(ProgressWatchTest, MovingWorkersNeverHang) {
    for (int i = 0; i < 100; ++i) {
        EXPECT_FALSE(pass(seconds(9)));
        commit(0);
        commit(1);
    }
}

TEST_F(ProgressWatchTest, FirstTimeOfASectionHasTheFirstLimit) {
    enter(0, "checkpoint", Duration::zero());
    for (int i = 0; i < 61; ++i) {  // The other one goes on.
        commit(1);
        EXPECT_FALSE(pass(milliseconds(9500)));
    }
    commit(1);
    EXPECT_FALSE(pass(seconds(9)));
    commit(1);
    pass(seconds(9));
    commit(1);
    const auto hang = pass(seconds(9));
    ASSERT_TRUE(hang);
    EXPECT_EQ(hang->text.substr(0, 38), "rank 4 has been in section 'checkpoint");
    EXPECT_NE(hang->text.find("(limit 600 s)"), std::string::npos);
}

TEST_F(ProgressWatchTest, FirstStepOfARoundHasTheFirstLimit) {
    for (WorkerLook& look : looks) {
        look.round = 3;
    }
    EXPECT_FALSE(pass(seconds(60)));
    commit(0);
    commit(1);
    EXPECT_TRUE(pass(seconds(12)));
}

TEST_F(ProgressWatchTest, NewProcessBeginsAnew) {
    pass(seconds(8));
    looks[0].pid = 200;
    looks[1].pid = 201;
    EXPECT_FALSE(pass(seconds(60)));
}

TEST_F(ProgressWatchTest, WaitingWorkerIsNotSuspectedWhileAnotherWorks) {
    wait_in(1, "all_reduce");
    enter(0, "checkpoint", Duration::zero());
    EXPECT_FALSE(pass(minutes(9)));
}

TEST_F(ProgressWatchTest, WorkerThatHoldsUpTheOthersIsNamed) {
    wait_in(0, "all_reduce");
    EXPECT_FALSE(pass(milliseconds(10500)));
    const auto hang = pass(seconds(1));
    ASSERT_TRUE(hang);
    EXPECT_EQ(hang->rank, 5U);
    EXPECT_FALSE(hang->shared);
}

TEST_F(ProgressWatchTest, NodeWhoseWorkersAllWaitReportsASharedHangAndWithdrawsIt) {
    wait_in(0, "all_reduce");
    wait_in(1, "all_reduce");
    const auto hang = pass(seconds(12));
    ASSERT_TRUE(hang);
    EXPECT_TRUE(hang->shared);
    EXPECT_EQ(hang->text,
              "rank 4 has been waiting in all_reduce, step 41, for 12 s (limit 10 s), and every "
              "worker of its node waits");
    looks[0].operations_done += 1;
    looks[0].waiting = false;
    EXPECT_FALSE(pass(kInterval));
}

// Long after a wait for a peer the rest of the step is not yet over.
TEST_F(ProgressWatchTest, WaitingTimeDoesNotCountForTheWorkThatFollows) {
    wait_in(1, "vote");
    enter(0, "checkpoint", Duration::zero());
    pass(minutes(2));
    looks[0].phase = Phase::training;
    looks[0].beats += 1;
    looks[1].waiting = false;
    looks[1].operations_done += 1;
    EXPECT_FALSE(pass(seconds(5)));
}

TEST_F(ProgressWatchTest, NodeWithAStartingWorkerIsNotStuck) {
    looks[0].phase = Phase::forming;
    looks[1].phase = Phase::starting;
    EXPECT_FALSE(pass(minutes(60)));
    looks.pop_back();  // It has no page yet.
    EXPECT_FALSE(pass(minutes(60)));
}

TEST_F(ProgressWatchTest, FormingHasTheFirstLimitHoweverShortItWasBefore) {
    for (WorkerLook& look : looks) {
        look.phase = Phase::forming;
        look.longest = milliseconds(2);
    }
    EXPECT_FALSE(pass(minutes(9)));
    const auto hang = pass(minutes(2));
    ASSERT_TRUE(hang);
    EXPECT_TRUE(hang->shared);
}

TEST_F(ProgressWatchTest, SuspendedAndLeavingWorkersNeverHang) {
    looks[0].phase = Phase::suspended;
    looks[1].phase = Phase::leaving;
    EXPECT_FALSE(pass(minutes(60)));
}

TEST_F(ProgressWatchTest, TimeBetweenLateLooksIsNotCounted) {
    pass(seconds(5));
    now += minutes(30);  // SIGSTOP, or the lid of a laptop.
    EXPECT_FALSE(pass(seconds(5)));
    EXPECT_TRUE(pass(seconds(2)));
}

TEST_F(ProgressWatchTest, TimeoutCapsEveryLimit) {
    HangLimits limits;
    limits.most = seconds(3);
    ProgressWatch strict(limits, kInterval);
    enter(0, "checkpoint", Duration::zero());
    EXPECT_FALSE(pass(seconds(3), &strict));
    EXPECT_TRUE(pass(seconds(1), &strict));
}

TEST_F(ProgressWatchTest, EnormousTimesDoNotOverflow) {
    looks[0].longest = Duration::max();
    looks[1].longest = Duration::max() / 2;
    EXPECT_FALSE(pass(minutes(60)));
}

TEST(SilenceTest, SilenceOfTheWholeNodeIsASharedHang) {
    HangLimits limits;
    limits.most = seconds(10);
    ProgressWatch watch(limits, kInterval);
    Instant now{seconds(5)};
    const auto pass = [&](Duration time, std::uint64_t bytes) {
        std::optional<rendezvous::Hang> hang;
        for (Duration t{}; t < time; t += kInterval) {
            now += kInterval;
            hang = watch.look_at_output(now, std::array{bytes}, 4);
        }
        return hang;
    };
    EXPECT_FALSE(pass(seconds(9), 0));
    EXPECT_FALSE(pass(seconds(9), 1));
    const auto hang = pass(seconds(2), 1);
    ASSERT_TRUE(hang);
    EXPECT_TRUE(hang->shared);
    EXPECT_EQ(hang->rank, 4U);
    EXPECT_FALSE(pass(seconds(1), 2));
    EXPECT_TRUE(pass(seconds(11), 2));
    watch.reset_silence();
    EXPECT_FALSE(pass(seconds(9), 2));
}

TEST(SilenceTest, HangNamesTheLongestSilentRankOnceAllAreSilent) {
    HangLimits limits;
    limits.most = seconds(10);
    ProgressWatch watch(limits, kInterval);
    Instant now{seconds(5)};
    std::array<std::uint64_t, 3> bytes = {1, 1, 1};
    const auto pass = [&](Duration time) {
        std::optional<rendezvous::Hang> hang;
        for (Duration t{}; t < time; t += kInterval) {
            now += kInterval;
            hang = watch.look_at_output(now, bytes, 4);
        }
        return hang;
    };
    EXPECT_FALSE(pass(seconds(4)));
    bytes[0] += 1;
    bytes[1] += 1;
    EXPECT_FALSE(pass(seconds(8))) << "only one has been silent for so long";
    const auto hang = pass(seconds(4));
    ASSERT_TRUE(hang);
    EXPECT_TRUE(hang->shared);
    EXPECT_EQ(hang->rank, 6U);
    EXPECT_GT(hang->stood, seconds(10));
    EXPECT_LT(hang->stood, seconds(12));
    EXPECT_NE(hang->text.find("--hang-timeout), rank 6 for 1"), std::string::npos) << hang->text;
    EXPECT_EQ(watch.silence_of(0), hang->stood);
    EXPECT_GT(watch.silence_of(2), seconds(14));
    EXPECT_EQ(watch.silence_of(3), Duration::zero());
    watch.reset_silence();
    EXPECT_EQ(watch.silence_of(2), Duration::zero());
}

TEST(SilenceTest, RankThatHasFinishedIsNotTheOneThatIsSilent) {
    HangLimits limits;
    limits.most = seconds(10);
    ProgressWatch watch(limits, kInterval);
    Instant now{seconds(5)};
    std::array<std::uint64_t, 2> bytes = {1, 1};
    std::optional<rendezvous::Hang> hang;
    for (Duration t{}; t < seconds(12); t += kInterval) {
        now += kInterval;
        bytes[0] += t < seconds(1) ? 1 : 0;
        hang = watch.look_at_output(now, bytes, 4, rendezvous::RankSet({5, 1}));
    }
    ASSERT_TRUE(hang);
    EXPECT_EQ(hang->rank, 4U);
    EXPECT_NE(hang->text.find("; rank 5 finished"), std::string::npos) << hang->text;
    EXPECT_FALSE(watch.look_at_output(now, bytes, 4, rendezvous::RankSet({4, 2})));
}

TEST_F(ProgressWatchTest, OthersHangWithoutTheRankThatHasFinished) {
    for (WorkerLook& look : looks) {
        look.waiting = true;
    }
    const std::size_t live = looks.size();
    std::optional<rendezvous::Hang> hang;
    for (Duration t{}; t < minutes(11); t += kInterval) {
        now += kInterval;
        hang = watch.look(now, looks, live + 1, rendezvous::RankSet({90, 1}));
    }
    ASSERT_TRUE(hang);
    EXPECT_TRUE(hang->shared);
    EXPECT_FALSE(watch.look(now, looks, live + 1));  // The last worker has no page.
}

TEST(SilenceTest, SilenceIsNoHangWithoutALimit) {
    ProgressWatch watch(HangLimits(), kInterval);
    Instant now{};
    for (int i = 0; i < 10000; ++i) {
        now += kInterval;
        EXPECT_FALSE(watch.look_at_output(now, std::array{std::uint64_t{0}}, 0));
    }
}

TEST(PageLookTest, LookHasTheFieldsOfThePage) {
    worker_link::WorkerPage page;
    page.phase = Phase::training;
    page.round = 3;
    page.step = 17;
    page.beats = 99;
    page.operations_issued = 12;
    page.operations_done = 11;
    page.waiting = 1;
    constexpr std::string_view kName = "all\nreduce";
    std::copy(kName.begin(), kName.end(), page.section.begin());

    const WorkerLook look = look_at(page, 1, 5, 4711);
    EXPECT_EQ(look.section, "all?reduce") << "a line break would spoil somebody's log";
    const rendezvous::RankPosition position = position_of(look);
    EXPECT_EQ(position.rank, 5U);
    EXPECT_EQ(position.step, 17U);
    EXPECT_EQ(position.operations, 12U);
    EXPECT_TRUE(position.waiting);
    EXPECT_EQ(position.doing, "all?reduce");
}

// A survivor and a new process wait for each other. Their steps do not show which is behind.
TEST(PageLookTest, WorkerThatFormsAGroupIsNotBehindByItsStep) {
    std::vector<rendezvous::RankPosition> positions;
    for (const std::uint64_t step : {17U, 18U, 0U}) {
        worker_link::WorkerPage page;
        page.phase = Phase::forming;
        page.step = step;
        positions.push_back(
            position_of(look_at(page, 0, static_cast<std::uint32_t>(positions.size()), 4711)));
    }
    EXPECT_FALSE(rendezvous::find_culprit(positions, 0).has_value());
    positions[1].operations = 1;
    positions[2].operations = 1;
    EXPECT_EQ(rendezvous::find_culprit(positions, 1)->rank, 0U) << "the others have the state";
}

TEST(PageLookTest, UnterminatedNameEndsWithItsField) {
    worker_link::WorkerPage page;
    page.section.fill('x');
    EXPECT_EQ(look_at(page, 0, 0, 1).section, std::string(48, 'x'));
}

TEST(LookIntervalTest, SmallLimitsShortenTheInterval) {
    HangLimits limits;
    EXPECT_EQ(look_interval(limits), milliseconds(500));
    limits.floor = milliseconds(400);
    EXPECT_EQ(look_interval(limits), milliseconds(50));
    limits.most = milliseconds(1);
    EXPECT_EQ(look_interval(limits), milliseconds(10));
}

TEST_F(ProgressWatchTest, WorkerMayStayInUserCodeUntilItsHangLimit) {
    pass(seconds(3));
    EXPECT_EQ(watch.work_left(looks[0]), seconds(10) - (seconds(3) - kInterval));  // The floor.
    enter(1, "evaluation", seconds(60));
    pass(seconds(20));
    EXPECT_EQ(watch.work_left(looks[1]), seconds(5 * 60) - (seconds(20) - kInterval));
    EXPECT_EQ(watch.work_left(looks[0]), Duration::zero());
    enter(1, "a checkpoint", Duration::zero());
    pass(kInterval);
    EXPECT_EQ(watch.work_left(looks[1]), minutes(10));  // Not seen before.
}

TEST_F(ProgressWatchTest, WaitingStatelessOrUnknownWorkerHasNoTimeLeft) {
    wait_in(0, "all_reduce");
    looks[1].step = 0;
    looks[1].longest = Duration::zero();
    pass(kInterval);
    EXPECT_EQ(watch.work_left(looks[0]), Duration::zero());
    EXPECT_EQ(watch.work_left(looks[1]), Duration::zero());
    looks[0].waiting = false;
    looks[0].local_rank = 7;
    EXPECT_EQ(watch.work_left(looks[0]), Duration::zero());
}

}  // namespace
}  // namespace regroup::agent
