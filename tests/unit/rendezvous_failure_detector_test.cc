// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "rendezvous/core/failure_detector.h"

namespace regroup::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class FailureDetectorTest : public testing::Test {
   protected:
    static constexpr NodeSlot a = 0;
    static constexpr NodeSlot b = 1;
    static constexpr NodeSlot c = 2;
    static constexpr NodeSlot nobody = 7;
    std::vector<NodeSlot> lost(Duration when) {
        std::vector<NodeSlot> result;
        for (auto& [node, how] : detector.lost(t0 + when)) {
            result.push_back(node);
            departures.push_back(how);
        }
        return result;
    }
    using Nodes = std::vector<NodeSlot>;
    const Instant t0 = Instant{} + seconds(100);
    FailureDetector detector{seconds(3), milliseconds(500)};
    std::vector<Departure> departures;
};

TEST_F(FailureDetectorTest, SilentNodeIsLostExactlyAtTheLimit) {
    detector.heard(a, t0);
    EXPECT_EQ(detector.next_deadline(), t0 + seconds(3));
    EXPECT_EQ(lost(seconds(3) - Duration(1)), Nodes{});
    EXPECT_EQ(lost(seconds(3)), Nodes{a});
    EXPECT_EQ(departures.back().kind, Departure::Kind::silent);
}

TEST_F(FailureDetectorTest, EverySignOfLifeRestartsTheLimit) {
    detector.heard(a, t0);
    detector.heard(a, t0 + seconds(2));
    EXPECT_EQ(lost(seconds(3)), Nodes{});
    EXPECT_EQ(detector.next_deadline(), t0 + seconds(5));
    EXPECT_EQ(detector.heard_at(a), t0 + seconds(2));
}

TEST_F(FailureDetectorTest, SuspectIsLostAfterTheReturnLimit) {
    detector.heard(a, t0);
    detector.suspect(a, t0 + seconds(1));
    EXPECT_TRUE(detector.suspects(a));
    EXPECT_EQ(lost(milliseconds(1499)), Nodes{});
    EXPECT_EQ(lost(milliseconds(1500)), Nodes{a});
    EXPECT_EQ(departures.back().kind, Departure::Kind::disconnected);
}

TEST_F(FailureDetectorTest, SuspicionNeverProlongsTheSilenceLimit) {
    detector.heard(a, t0);
    detector.suspect(a, t0 + milliseconds(2900));
    EXPECT_EQ(lost(seconds(3)), Nodes{a});
}

TEST_F(FailureDetectorTest, RepeatedSuspicionDoesNotProlong) {
    detector.heard(a, t0);
    detector.suspect(a, t0);
    detector.suspect(a, t0 + milliseconds(400));
    EXPECT_EQ(lost(milliseconds(500)), Nodes{a});
}

TEST_F(FailureDetectorTest, SignOfLifeEndsASuspicion) {
    detector.heard(a, t0);
    detector.suspect(a, t0);
    detector.heard(a, t0 + milliseconds(100));
    EXPECT_FALSE(detector.suspects(a));
    EXPECT_EQ(lost(seconds(3)), Nodes{});
}

TEST_F(FailureDetectorTest, ForgottenAndUnknownNodesAreNeverLost) {
    detector.heard(a, t0);
    detector.suspect(a, t0);
    detector.forget(a);
    detector.forget(nobody);
    detector.suspect(nobody, t0);
    EXPECT_EQ(lost(seconds(60)), Nodes{});
    EXPECT_EQ(detector.next_deadline(), Instant::max());
    EXPECT_EQ(detector.heard_at(a), Instant::min());
}

TEST_F(FailureDetectorTest, OverdueNodesAreLostInOrderOfTheirDeadlines) {
    detector.heard(c, t0 + milliseconds(20));
    detector.heard(b, t0 + milliseconds(10));
    detector.heard(a, t0 + seconds(1));
    EXPECT_EQ(lost(seconds(3) + milliseconds(20)), (Nodes{b, c}));
}

TEST_F(FailureDetectorTest, LateCheckGivesOnePeriodOfGraceButOnlyOne) {
    detector.heard(a, t0);
    EXPECT_EQ(lost(seconds(20)), Nodes{});  // Asleep for 17 s.
    EXPECT_EQ(detector.next_deadline(), t0 + seconds(23));
    EXPECT_EQ(lost(seconds(40)), Nodes{a});
}

TEST_F(FailureDetectorTest, SignOfLifeAllowsANewPeriodOfGrace) {
    detector.heard(a, t0);
    EXPECT_EQ(lost(seconds(20)), Nodes{});
    detector.heard(a, t0 + seconds(21));
    EXPECT_EQ(lost(seconds(40)), Nodes{});
    EXPECT_EQ(lost(seconds(43)), Nodes{a});
}

TEST_F(FailureDetectorTest, ReturnLimitIsNeverLongerThanTheSilenceLimit) {
    FailureDetector quick(milliseconds(200), milliseconds(500));
    quick.heard(a, t0);
    quick.suspect(a, t0);
    EXPECT_EQ(quick.next_deadline(), t0 + milliseconds(200));
}

// ---- The daemon was away.

class AbsenceTest : public FailureDetectorTest {
   protected:
    /// Calls `lost` whenever it is due, as a daemon that runs for `span`.
    Nodes listen(Duration span) {
        Nodes result;
        const Instant end = now + span;
        while (detector.next_deadline() <= end) {
            now = detector.next_deadline();
            for (auto& [node, how] : detector.lost(now)) {
                result.push_back(node);
                departures.push_back(how);
            }
            for (const NodeSlot node : result) {
                detector.forget(node);
            }
        }
        now = end;
        return result;
    }
    void return_after(Duration away) {
        now += away;
        detector.suspect_all(now);
    }
    Instant now = t0;
};

TEST_F(AbsenceTest, AllNodesHaveTheWholeTimeToComeBack) {
    detector.heard(a, now);
    return_after(seconds(60));
    EXPECT_EQ(detector.last_deadline(), now + seconds(8));
    EXPECT_EQ(listen(seconds(8) - Duration(1)), Nodes{});
    EXPECT_EQ(detector.first_sign(a), now - seconds(8) + Duration(1));
    detector.heard(b, now);
    EXPECT_EQ(listen(Duration(1)), Nodes{a});
    EXPECT_EQ(departures.back().kind, Departure::Kind::absent);
    EXPECT_EQ(detector.next_deadline(), now + seconds(3) - Duration(1));
}

TEST_F(AbsenceTest, TimeToComeBackGoesOnAfterAnotherRestart) {
    detector.heard(a, now);
    return_after(seconds(1));
    const Instant first = now;
    EXPECT_EQ(listen(milliseconds(5500)), Nodes{});
    return_after(seconds(1));
    // 5 s were recorded; 3 s of them count.
    EXPECT_EQ(detector.last_deadline(), now + seconds(5));
    EXPECT_EQ(listen(milliseconds(4500)), Nodes{});
    return_after(seconds(30));
    EXPECT_EQ(detector.last_deadline(), now + seconds(3));
    EXPECT_EQ(detector.first_sign(a), first);
    EXPECT_EQ(listen(seconds(3)), Nodes{a});
    EXPECT_EQ(departures.back().kind, Departure::Kind::absent);
    EXPECT_EQ(departures.back().restarts, 3U);
}

TEST_F(AbsenceTest, FrequentRestartsDoNotLoseNodesThatPause) {
    detector.heard(a, now);
    for (int life = 0; life < 20; ++life) {
        return_after(seconds(1));
        EXPECT_EQ(listen(milliseconds(2900)), Nodes{});
    }
    EXPECT_EQ(detector.last_deadline(), now - milliseconds(2900) + seconds(8));
}

TEST_F(AbsenceTest, NodeThatCameBackHasTheWholeTimeAgain) {
    detector.heard(a, now);
    detector.heard(b, now);
    return_after(seconds(1));
    EXPECT_EQ(listen(seconds(6)), Nodes{});
    detector.heard(b, now);
    return_after(seconds(1));
    EXPECT_EQ(detector.lost_at(a), now + seconds(4));
    EXPECT_EQ(detector.lost_at(b), now + seconds(8));
}

TEST_F(AbsenceTest, SleepDoesNotCountAsListening) {
    detector.heard(a, now);
    return_after(seconds(1));
    now += seconds(7);
    EXPECT_EQ(detector.lost(now), (std::vector<std::pair<NodeSlot, Departure>>{}));
    return_after(seconds(1));
    EXPECT_EQ(detector.last_deadline(), now + seconds(8));
}

}  // namespace
}  // namespace regroup::rendezvous
