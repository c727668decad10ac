// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "agent/watch/hang_watch.h"
#include "tests/conformance/process_helpers/process_harness.h"

namespace regroup::agent {
namespace {

using rendezvous::Hang;
using std::chrono::milliseconds;
using worker_link::Phase;

class HangWatchTest : public ::testing::Test {
   protected:
    HangWatchTest() {
        limits.most = milliseconds(100);
        look.phase = Phase::training;
        look.rank = 7;
        look.pid = 1;
    }

    std::unique_ptr<HangWatch> make() {
        return std::make_unique<HangWatch>(
            io, clock, limits,
            HangWatch::Handlers{[this] {
                                    ++looked;
                                    return looks;
                                },
                                [this](Instant) { return groups; }, [this] { return bytes; },
                                [this] { return finished; },
                                [this](const std::optional<Hang>& hang) { told.push_back(hang); },
                                [this](Duration left) { lefts.push_back(left); },
                                [this](std::int64_t) { return stopped; }});
    }
    bool told_of(std::size_t count) {
        return run_until(io, [&] { return told.size() >= count; });
    }

    boost::asio::io_context io;
    SteadyClock clock;
    HangLimits limits;
    WorkerLook look;
    std::vector<WorkerLook> looks;
    std::vector<WorkerGroups> groups;
    std::optional<std::vector<std::uint64_t>> bytes{{0, 0}};
    rendezvous::RankSet finished;
    int looked = 0;
    std::vector<std::optional<Hang>> told;
    std::vector<Duration> lefts;
    bool stopped = false;
};

TEST_F(HangWatchTest, StoppedProcessIsNotInUserCode) {
    look.step = 3;
    looks = {look};
    stopped = true;
    const auto watch = make();
    watch->begin(7, 1);
    ASSERT_TRUE(run_until(io, [&] { return looked > 0; }));
    watch->stop();
    const int until = looked + 5;
    ASSERT_TRUE(run_until(io, [&] { return looked > until; }));
    EXPECT_TRUE(lefts.empty());
}

TEST_F(HangWatchTest, StoppingRoundReportsTimeLeftInsteadOfHangs) {
    limits.most = milliseconds(300);
    look.step = 3;
    looks = {look};
    const auto watch = make();
    watch->begin(7, 1);
    ASSERT_TRUE(run_until(io, [&] { return looked > 0; }));
    watch->stop();
    watch->stop();
    ASSERT_EQ(lefts.size(), 1U);
    EXPECT_GT(lefts[0], Duration::zero());
    EXPECT_LE(lefts[0], milliseconds(300));
    ASSERT_TRUE(run_until(io, [&] { return lefts.size() > 1 && lefts.back() < lefts.front(); }));
    const int until = looked + 40;
    ASSERT_TRUE(run_until(io, [&] { return looked > until; }));
    const std::size_t count = lefts.size();
    const int later = looked + 5;
    ASSERT_TRUE(run_until(io, [&] { return looked > later; }));
    EXPECT_EQ(lefts.size(), count);  // By now it would count as hung.
    EXPECT_TRUE(told.empty());
}

TEST_F(HangWatchTest, HangAndItsEndAreReportedOnce) {
    looks = {look};
    const auto watch = make();
    watch->begin(7, 1);
    ASSERT_TRUE(told_of(1));
    ASSERT_TRUE(told[0]);
    EXPECT_EQ(told[0]->rank, 7U);
    const int until = looked + 5;
    ASSERT_TRUE(run_until(io, [&] { return looked > until; }));
    EXPECT_EQ(told.size(), 1U);
    looks[0].beats += 1;
    ASSERT_TRUE(told_of(2));
    EXPECT_FALSE(told[1]);
}

TEST_F(HangWatchTest, SilenceOfWorkersWithoutPagesIsAHang) {
    look.phase = Phase::starting;  // Links the SDK, without its loop.
    looks = {look};
    const auto watch = make();
    watch->begin(7, 2);
    ASSERT_TRUE(told_of(1));
    EXPECT_EQ(told[0]->text.substr(0, 40), "no worker of the node has written anythi");
    EXPECT_TRUE(told[0]->shared);
    bytes->front() += 1;
    ASSERT_TRUE(told_of(2));
    EXPECT_FALSE(told[1]);
}

TEST_F(HangWatchTest, InheritedOutputIsNoSilence) {
    bytes.reset();
    const auto watch = make();
    watch->begin(7, 2);
    const int until = looked + 40;
    ASSERT_TRUE(run_until(io, [&] { return looked > until; }));
    EXPECT_TRUE(told.empty());
}

TEST_F(HangWatchTest, RankThatIsInACollectiveForLongIsReported) {
    limits.most.reset();
    limits.floor = milliseconds(80);
    bytes.reset();
    GroupLook group;
    group.position.entered = 41;
    group.position.completed = 40;
    group.position.knows_ends = true;
    group.position.stood = std::chrono::hours(1);
    groups = {{0, 7, 100, {group}}};
    const auto watch = make();
    watch->begin(7, 1);
    ASSERT_TRUE(told_of(1));
    ASSERT_TRUE(told[0]);
    EXPECT_EQ(told[0]->rank, 7U);
    EXPECT_TRUE(told[0]->in_collective);
    groups.clear();
    ASSERT_TRUE(told_of(2));
    EXPECT_FALSE(told[1]);
}

TEST_F(HangWatchTest, StoppedRoundReportsNothing) {
    looks = {look};
    const auto watch = make();
    watch->begin(7, 1);
    ASSERT_TRUE(told_of(1));
    watch->end();
    io.restart();
    io.run();  // Returns: no timer is left.
    EXPECT_EQ(told.size(), 1U);
}

}  // namespace
}  // namespace regroup::agent
