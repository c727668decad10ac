// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/view/slow_ranks.h"

#include <chrono>
#include <vector>

#include <gtest/gtest.h>

#include "agent/watch/work_windows.h"

namespace regroup::rendezvous {
namespace {

using namespace std::chrono_literals;

/// Two nodes of two ranks. Rank 2 works `factor` times as long as the others.
class SlowRanksTest : public ::testing::Test {
   protected:
    void pass(double factor, RoundId round = RoundId{1}) {
        ++number;
        const auto usual = WorkTime{10s};
        const WorkTime late{Duration(static_cast<Duration::rep>(1e10 * factor))};
        hear("a", round, {number, 4, 0, {usual, usual}});
        hear("b", round, {number, 4, 2, {late, usual}});
    }
    void hear(const NodeId& node, RoundId round, const WorkWindow& window) {
        for (const SlowRank& each : slow.hear(node, round, window)) {
            found.push_back(each.rank);
        }
    }
    SlowRanks slow;
    std::vector<std::uint32_t> found;
    std::uint64_t number = 0;
};

TEST_F(SlowRanksTest, RankThatWorksLongerIsNamedAfterAMinute) {
    for (int window = 0; window < 3; ++window) {
        EXPECT_TRUE(slow.now().empty());
        pass(1.3);
    }
    ASSERT_EQ(slow.now().size(), 1U);
    EXPECT_EQ(slow.now()[0].rank, 2U);
    EXPECT_NEAR(slow.now()[0].excess, 0.3, 0.001);
    EXPECT_EQ(found, std::vector<std::uint32_t>{2});
    pass(1.3);
    EXPECT_EQ(found.size(), 1U) << "it was told already";
}

TEST_F(SlowRanksTest, SmallDifferencesNameNobody) {
    for (int window = 0; window < 100; ++window) {
        pass(1.05);
    }
    EXPECT_TRUE(slow.now().empty());
}

TEST_F(SlowRanksTest, ARankThatHasRecoveredIsForgotten) {
    for (int window = 0; window < 8; ++window) {
        pass(1.3);
    }
    for (int window = 0; window < 5; ++window) {
        pass(1);
    }
    EXPECT_TRUE(slow.now().empty());
}

TEST_F(SlowRanksTest, ANewRoundBeginsAnew) {
    for (int window = 0; window < 8; ++window) {
        pass(1.3);
    }
    number = 0;
    pass(1.3, RoundId{2});
    EXPECT_TRUE(slow.now().empty());
}

TEST_F(SlowRanksTest, IncompleteWindowsDoNotCount) {
    for (std::uint64_t window = 1; window < 20; ++window) {
        hear("a", RoundId{1}, {window, 4, 0, {{10s}, {20s}}});
        hear("a", RoundId{1}, {window, 4, 2, {{10s}, {20s}}});  // Says it again.
    }
    EXPECT_TRUE(slow.now().empty());
}

TEST_F(SlowRanksTest, RanksThatDoNotFitTheWorldDoNotCount) {
    for (std::uint64_t window = 1; window < 20; ++window) {
        hear("a", RoundId{1}, {window, 4, 0, {{10s}, {20s}}});
        hear("b", RoundId{1}, {window, 4, 4'000'000'000, {{10s}, {20s}}});
    }
    EXPECT_TRUE(slow.now().empty());
}

}  // namespace
}  // namespace regroup::rendezvous

namespace regroup::agent {
namespace {

using namespace std::chrono_literals;
using rendezvous::kWorkWindow;
using rendezvous::WorkWindow;

class WorkWindowsTest : public ::testing::Test {
   protected:
    WorkWindowsTest() { windows.begin_round(now); }
    /// Looks each second; the workers spend these parts of the time in collectives.
    std::optional<WorkWindow> pass(Duration time, double first, double second) {
        std::optional<WorkWindow> last;
        for (const Instant end = now + time; now < end;) {
            now += 1s;
            workers[0].spent += Duration(static_cast<Duration::rep>(1e9 * first));
            workers[1].spent += Duration(static_cast<Duration::rep>(1e9 * second));
            if (std::optional<WorkWindow> window = windows.look(now, workers)) {
                last = std::move(window);
            }
        }
        return last;
    }
    WorkWindows windows;
    Instant now = Instant(1h);
    std::vector<TimeInCollectives> workers{{100, true, 0s}, {101, true, 0s}};
};

TEST_F(WorkWindowsTest, WorkIsTheTimeOutsideOfCollectives) {
    EXPECT_FALSE(pass(14s, 0.2, 0.6));
    std::optional<WorkWindow> window = pass(15s, 0.2, 0.6);
    window = window ? window : pass(2s, 0.2, 0.6);
    ASSERT_TRUE(window);
    ASSERT_EQ(window->work.size(), 2U);
    EXPECT_NEAR(to_seconds(window->work[0].time), 12, 0.01);
    EXPECT_NEAR(to_seconds(window->work[1].time), 6, 0.01);
}

TEST_F(WorkWindowsTest, WindowsAreNumberedFromTheBeginOfTheRound) {
    EXPECT_EQ(pass(16s, 0.5, 0.5)->number, 1U);
    EXPECT_EQ(pass(15s, 0.5, 0.5)->number, 2U);
    windows.begin_round(now);
    EXPECT_EQ(pass(17s, 0.5, 0.5)->number, 1U);
}

TEST_F(WorkWindowsTest, AnotherProcessOrAnEndedGroupGivesNoWindow) {
    static_cast<void>(pass(16s, 0.5, 0.5));
    workers[1] = {102, true, 0s};
    EXPECT_FALSE(pass(14s, 0.5, 0.5));
    EXPECT_TRUE(pass(15s, 0.5, 0.5));
    workers[0].spent = 0s;
    EXPECT_FALSE(pass(14s, 0, 0));
}

TEST_F(WorkWindowsTest, WithoutKnownEndsThereIsNoWindow) {
    workers[1].is_known = false;
    EXPECT_FALSE(pass(60s, 0, 0));
}

}  // namespace
}  // namespace regroup::agent
