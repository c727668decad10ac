// SPDX-License-Identifier: Apache-2.0
//
// The measurements of a training program, from its steps to the daemon's sums.
#include "agent/watch/telemetry.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "rendezvous/base/telemetry_limits.h"
#include "rendezvous/view/job_telemetry.h"
#include "tests/support/matchers.h"
#include "worker_sdk/src/elastic/step_clock.h"
#include "worker_sdk/src/link/telemetry_writer.h"

namespace regroup {
namespace {

using agent::LiveWorker;
using agent::read_telemetry;
using agent::SharedPage;
using agent::TelemetrySource;
using elastic::StepClock;
using link::StepTimes;
using link::TelemetryWriter;
using rendezvous::JobTelemetry;
using rendezvous::ReportedValue;
using rendezvous::RoundId;
using rendezvous::StepCounters;
using rendezvous::Telemetry;
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using worker_link::TelemetryBlock;
using worker_link::WorkerPage;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// ---- The times of a step.

class StepClockTest : public ::testing::Test {
   protected:
    void works(int ms) { now += milliseconds(ms); }
    void waits(int ms) {
        now += milliseconds(ms);
        waited += milliseconds(ms);
    }
    void open() {
        begun = now;
        clock.open(now, waited);
    }
    void expect_times(int data, int compute, int communication, int waiting) {
        const StepTimes times = clock.close(now);
        EXPECT_EQ(times.data, milliseconds(data));
        EXPECT_EQ(times.compute, milliseconds(compute));
        EXPECT_EQ(times.communication, milliseconds(communication));
        EXPECT_EQ(times.waiting, milliseconds(waiting));
        EXPECT_EQ(times.data + times.compute + times.communication + times.waiting, now - begun);
    }

    StepClock clock;
    Instant now{seconds(100)};
    Instant begun{};
    Duration waited = seconds(7);
};

TEST_F(StepClockTest, TimesOfAStepAddUpToItsLength) {
    for (int step = 0; step < 2; ++step) {
        open();
        clock.begin_data(now, waited);
        works(3);
        clock.end_data(now, waited);
        works(20);
        waits(5);
        clock.begin_data(now, waited);
        works(1);
        clock.end_data(now, waited);
        clock.reach_commit(now, waited);
        waits(8);
        clock.begin_apply(now);
        works(2);
        expect_times(4, 22, 5, 8);
        works(50);  // Between two steps.
    }
}

TEST_F(StepClockTest, WaitsForOperationsInASectionForDataAreCommunication) {
    open();
    clock.begin_data(now, waited);
    works(3);
    waits(4);
    clock.end_data(now, waited);
    clock.reach_commit(now, waited);
    clock.begin_apply(now);
    expect_times(3, 0, 4, 0);
}

TEST_F(StepClockTest, SectionForDataEndsWithTheStepAtTheLatest) {
    open();
    clock.begin_data(now, waited);
    works(3);
    clock.reach_commit(now, waited);
    waits(2);
    clock.begin_apply(now);
    works(1);
    clock.end_data(now, waited);
    expect_times(3, 1, 0, 2);
    clock.begin_data(now, waited);  // After the commit: of no step.
    works(9);
    open();
    works(1);
    clock.end_data(now, waited);
    clock.reach_commit(now, waited);
    clock.begin_apply(now);
    expect_times(0, 1, 0, 0);
}

// ---- The page.

TEST(TelemetryPage, AgentReadsWhatTheWorkerHasCounted) {
    WorkerPage page;
    TelemetryWriter writer(&page);
    EXPECT_TRUE(writer.set_value("loss", 2.5));
    EXPECT_FALSE(read_telemetry(page.telemetry, 7)) << "there was no step";
    writer.count_step({milliseconds(1), milliseconds(2), milliseconds(3), milliseconds(4)}, 64);
    writer.count_step({milliseconds(10), milliseconds(20), milliseconds(30), milliseconds(40)}, 32);
    EXPECT_TRUE(writer.set_value("loss", 1.25));
    EXPECT_TRUE(writer.set_value("grad_norm", -3));
    const auto telemetry = read_telemetry(page.telemetry, 7);
    ASSERT_TRUE(telemetry);
    EXPECT_EQ(telemetry->pid, 7U);
    EXPECT_EQ(telemetry->counters, (StepCounters{.steps = 2,
                                                 .samples = 96,
                                                 .data = milliseconds(11),
                                                 .compute = milliseconds(22),
                                                 .communication = milliseconds(33),
                                                 .waiting = milliseconds(44)}));
    EXPECT_THAT(telemetry->values,
                ElementsAre(ReportedValue{"loss", 1.25}, ReportedValue{"grad_norm", -3}));
}

TEST(TelemetryPage, ValueThatIsNotFiniteIsLeftOut) {
    WorkerPage page;
    TelemetryWriter writer(&page);
    writer.count_step({}, 0);
    for (const double value : {kNan, HUGE_VAL, -HUGE_VAL}) {
        EXPECT_TRUE(writer.set_value("loss", value));
        EXPECT_THAT(read_telemetry(page.telemetry, 1)->values, IsEmpty());
    }
    EXPECT_TRUE(writer.set_value("loss", 3));
    EXPECT_THAT(read_telemetry(page.telemetry, 1)->values, ElementsAre(ReportedValue{"loss", 3}));
}

TEST(TelemetryPage, NinthValueIsRefusedAndTheOthersStay) {
    TelemetryWriter writer(nullptr);
    for (std::size_t i = 0; i < kReportedValuesMax; ++i) {
        EXPECT_TRUE(writer.set_value("value_" + std::to_string(i), 1));
    }
    EXPECT_FALSE(writer.set_value("one_more", 1));
    EXPECT_TRUE(writer.set_value("value_3", 8));
    writer.count_step({}, 0);
    const auto telemetry = read_telemetry(writer.block(), 1);
    ASSERT_EQ(telemetry->values.size(), kReportedValuesMax);
    EXPECT_EQ(telemetry->values[3], (ReportedValue{"value_3", 8}));
}

TEST(TelemetryPage, LongestNameFits) {
    const std::string name(kValueNameBytesMax, 'n');
    TelemetryWriter writer(nullptr);
    EXPECT_TRUE(writer.set_value(name, 1));
    EXPECT_TRUE(writer.set_value(name, 2));
    writer.count_step({}, 0);
    EXPECT_THAT(read_telemetry(writer.block(), 1)->values, ElementsAre(ReportedValue{name, 2}));
}

TEST(TelemetryPage, AnythingInThePageGivesATelemetryThatTheDaemonAccepts) {
    TelemetryBlock block;
    block.steps = block.samples = std::numeric_limits<std::uint64_t>::max();
    block.data = -1;
    block.compute = std::numeric_limits<std::int64_t>::max();
    block.values_count = 4000;
    const std::vector<std::string> names{"Loss", "loss", "loss", "", "1st", "a\nb"};
    for (std::size_t i = 0; i < names.size(); ++i) {
        std::ranges::copy(names[i], block.values[i].name.begin());
    }
    block.values[6].name.fill('x');  // No zero at its end.
    const auto telemetry = read_telemetry(block, 1);
    ASSERT_TRUE(telemetry);
    EXPECT_EQ(telemetry->counters.steps, std::uint64_t{1} << 53U);
    EXPECT_EQ(telemetry->counters.samples, std::uint64_t{1} << 53U);
    EXPECT_EQ(telemetry->counters.data, Duration::zero());
    EXPECT_EQ(telemetry->counters.compute, hours(24 * 365 * 30));
    EXPECT_THAT(telemetry->values, ElementsAre(ReportedValue{"loss", 0}));
}

TEST(TelemetryNames, AreThoseOfLabelValues) {
    for (const char* good : {"a", "_", "loss", "grad_norm_2", "_x9"}) {
        EXPECT_TRUE(is_value_name(good)) << good;
    }
    for (const char* bad : {"", "9a", "Loss", "a-b", "a b", "a.b", "\xC3\xA4", "a\n"}) {
        EXPECT_FALSE(is_value_name(bad)) << bad;
    }
    EXPECT_TRUE(is_value_name(std::string(32, 'x')));
    EXPECT_FALSE(is_value_name(std::string(33, 'x')));
}

// ---- The agent's side.

class TelemetrySourceTest : public ::testing::Test {
   protected:
    /// A worker whose page has counted `steps`.
    static LiveWorker worker(std::uint32_t rank, RoundId round, int steps) {
        LiveWorker live{.local_rank = 0, .rank = rank, .pid = 4711, .round = round};
        live.page = *SharedPage::create();
        TelemetryWriter writer(&**live.page);
        for (int i = 0; i < steps; ++i) {
            writer.count_step({}, 1);
        }
        return live;
    }
    std::uint64_t steps_told(RoundId round, const std::vector<LiveWorker>& workers) {
        const auto news = source.news(round, workers);
        return news ? news->counters.steps : 0;
    }

    static constexpr RoundId kRound{3};
    TelemetrySource source;
};

TEST_F(TelemetrySourceTest, OnlyTheNodeWithRankZeroSpeaks) {
    EXPECT_EQ(steps_told(kRound, {worker(1, kRound, 5), worker(2, kRound, 5)}), 0U);
    EXPECT_EQ(steps_told(kRound, {worker(1, kRound, 5), worker(0, kRound, 6)}), 6U);
}

TEST_F(TelemetrySourceTest, WhatHasNotChangedIsNotRepeatedOnAConnection) {
    const std::vector<LiveWorker> workers{worker(0, kRound, 5)};
    EXPECT_EQ(steps_told(kRound, workers), 5U);
    EXPECT_EQ(steps_told(kRound, workers), 0U);
    source.forget_sent();
    EXPECT_EQ(steps_told(kRound, workers), 5U);
    TelemetryWriter(&**workers[0].page).count_step({}, 1);
    EXPECT_EQ(steps_told(kRound, workers), 6U);
}

TEST_F(TelemetrySourceTest, LastStepsOfAProcessThatHasEndedAreTold) {
    const LiveWorker ends = worker(0, kRound, 5);
    EXPECT_EQ(steps_told(kRound, {ends}), 5U);
    TelemetryWriter(&**ends.page).count_step({}, 1);
    EXPECT_EQ(steps_told(kRound, {}), 6U);
}

TEST_F(TelemetrySourceTest, NodeThatHasLostRankZeroIsSilent) {
    const LiveWorker stays = worker(0, kRound, 5);
    EXPECT_EQ(steps_told(kRound, {stays}), 5U);
    LiveWorker moved = stays;
    moved.rank = 4;
    moved.round = RoundId{4};
    TelemetryWriter(&**moved.page).count_step({}, 1);
    EXPECT_EQ(steps_told(RoundId{4}, {moved}), 0U);
    EXPECT_EQ(steps_told(RoundId{4}, {}), 0U);
}

TEST_F(TelemetrySourceTest, WorkerThatWasStartedAheadHasNoRank) {
    EXPECT_EQ(steps_told(RoundId::none, {worker(0, RoundId::none, 5)}), 0U);
    EXPECT_EQ(steps_told(kRound, {worker(0, RoundId::none, 5)}), 0U);
}

// ---- The daemon's side.

Telemetry counted(std::uint32_t pid, std::uint64_t steps) {
    return {.pid = pid,
            .counters = {.steps = steps,
                         .samples = 10 * steps,
                         .data = milliseconds(steps),
                         .compute = 2 * milliseconds(steps),
                         .communication = 3 * milliseconds(steps),
                         .waiting = 4 * milliseconds(steps)}};
}

TEST(JobTelemetryTest, SumsGoOnWhenRankZeroMovesToAnotherProcess) {
    JobTelemetry job;
    EXPECT_FALSE(job.last());
    job.hear("a", counted(7, 100), Instant(seconds(1)));
    EXPECT_EQ(job.recent_time(), Duration::zero()) << "they took an unknown time";
    job.hear("a", counted(7, 120), Instant(seconds(3)));
    EXPECT_EQ(job.recent().samples, 200U);
    EXPECT_EQ(job.recent_time(), seconds(2));
    job.hear("b", counted(7, 300), Instant(seconds(4)));
    EXPECT_EQ(job.total(), counted(7, 420).counters) << "the same number on another node";
    job.hear("b", counted(8, 350), Instant(seconds(5)));
    EXPECT_EQ(job.total(), counted(8, 770).counters);
    job.hear("b", counted(8, 10), Instant(seconds(6)));
    EXPECT_EQ(job.total(), counted(8, 780).counters) << "the number was used again";
    EXPECT_EQ(job.last(), counted(8, 10));
    EXPECT_EQ(job.heard_at(), Instant(seconds(6)));
}

TEST(JobTelemetryTest, StepsOfAProcessThatHasRankZeroAgainAreNotCountedAgain) {
    JobTelemetry job;
    job.hear("a", counted(7, 100), Instant(seconds(1)));
    job.hear("b", counted(7, 30), Instant(seconds(2)));
    job.hear("a", counted(7, 120), Instant(seconds(3)));
    EXPECT_EQ(job.total(), counted(7, 150).counters);
    EXPECT_EQ(job.recent().steps, 20U);
}

TEST(JobTelemetryTest, ValueWithoutAStepLeavesTheRate) {
    JobTelemetry job;
    job.hear("a", counted(7, 100), Instant(seconds(1)));
    job.hear("a", counted(7, 120), Instant(seconds(3)));
    Telemetry same = counted(7, 120);
    same.values.push_back({"loss", 1});
    job.hear("a", same, Instant(seconds(4)));
    EXPECT_EQ(job.recent().steps, 20U);
    EXPECT_EQ(job.recent_time(), seconds(2));
    EXPECT_EQ(job.last(), same);
    EXPECT_EQ(job.total(), counted(7, 120).counters);
}

TEST(JobTelemetryTest, NoTimeOverflows) {
    JobTelemetry job;
    Telemetry most{.pid = 1, .counters = {.steps = 1, .data = hours(24 * 365 * 30)}};
    for (int i = 0; i < 100; ++i) {
        most.pid += 1;
        job.hear("a", most, Instant(seconds(i)));
    }
    EXPECT_EQ(job.total().data, StepCounters::kTimeMax);
}

}  // namespace
}  // namespace regroup
