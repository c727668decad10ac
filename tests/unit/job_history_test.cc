// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/view/job_history.h"

#include <chrono>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "rendezvous/view/job_view.h"
#include "tests/unit/job_events.h"

namespace regroup::rendezvous {
namespace {

using namespace std::chrono_literals;
using testing::at;
using testing::event;

double time_in(const JobHistory& history, JobState state, Duration now) {
    const JobTotals totals = history.totals(at(now));
    return std::chrono::duration<double>(totals.time[static_cast<std::size_t>(state)]).count();
}

Cause worker_failed() {
    return Cause::Failed{WorkerFailure{}};
}

/// A job that trains from second 10, whose worker fails at second 20 after its last step at 19, and
/// that trains again at second 25.
JobHistory recovered_job(std::uint64_t lost_steps) {
    JobHistory history("j");
    history.record({event(0s, JobEvent::Kind::joined),
                    event(1s, JobEvent::Kind::assigned, JobEvent::Members{{"a", 0, 2}}),
                    event(10s, JobEvent::Kind::running)},
                   1000);
    history.reached(at(19s), 90);
    history.record({event(20s, JobEvent::Kind::ending, worker_failed()),
                    event(21s, JobEvent::Kind::assigned, JobEvent::Members{{"a", 0, 2}}),
                    event(25s, JobEvent::Kind::running)},
                   2000);
    Incident incident;
    incident.cause = worker_failed();
    incident.detect = 1s;
    incident.stop = 4s;
    incident.lost_steps = lost_steps;
    incident.step = 90 - lost_steps;
    history.record({event(25s, JobEvent::Kind::recovered, Boxed<Incident>(incident))}, 3000);
    return history;
}

TEST(JobHistory, TimeSinceTheLastStepIsPartOfTheRecovery) {
    JobHistory history = recovered_job(0);
    history.reached(at(30s), 100);
    EXPECT_EQ(time_in(history, JobState::waiting, 30s), 10);
    EXPECT_EQ(time_in(history, JobState::recovering, 30s), 6);
    EXPECT_EQ(time_in(history, JobState::productive, 30s), 14);
    EXPECT_EQ(history.totals(at(30s)).restarts[static_cast<std::size_t>(CauseWord::failure)], 1U);
    EXPECT_EQ(history.totals(at(30s)).recoveries.back().count, 1U);
}

TEST(JobHistory, StepsThatAreDoneAgainAreLostTime) {
    JobHistory history = recovered_job(40);
    history.reached(at(28s), 80);
    EXPECT_EQ(history.state(), JobState::lost);
    history.reached(at(29s), 90);
    history.reached(at(31s), 100);
    EXPECT_EQ(time_in(history, JobState::lost, 31s), 4);
    EXPECT_EQ(time_in(history, JobState::productive, 31s), 11);
    EXPECT_EQ(history.totals(at(31s)).lost_steps, 40U);
}

TEST(JobHistory, TimesNeverDecreaseAndAddUpToTheAgeOfTheJob) {
    JobHistory history = recovered_job(0);
    double before = 0;
    for (int second = 26; second < 40; ++second) {
        history.reached(at(std::chrono::seconds(second)), 100 + static_cast<std::uint64_t>(second));
        double sum = 0;
        for (const Duration time : history.totals(at(std::chrono::seconds(second))).time) {
            sum += std::chrono::duration<double>(time).count();
        }
        EXPECT_EQ(sum, second);
        EXPECT_GT(sum, before);
        before = sum;
    }
}

// The journal keeps an event first, and the metrics may be read meanwhile.
TEST(JobHistory, EventThatComesLateTakesNoTimeBackThatWasTold) {
    JobHistory history("j");
    history.record({event(0s, JobEvent::Kind::joined)}, 0);
    EXPECT_EQ(time_in(history, JobState::waiting, 12s), 12);
    history.record({event(10s, JobEvent::Kind::running)}, 0);
    EXPECT_EQ(time_in(history, JobState::waiting, 15s), 12);
    EXPECT_EQ(time_in(history, JobState::productive, 15s), 3);
}

TEST(JobHistory, ProgramsThatDoNotTellTheirStepsCountAsProductiveUntilTheyEnd) {
    JobHistory history("j");
    history.record({event(0s, JobEvent::Kind::joined), event(2s, JobEvent::Kind::running)}, 0);
    EXPECT_EQ(time_in(history, JobState::productive, 12s), 10);
    history.record({event(20s, JobEvent::Kind::closed, Boxed<Verdict>(Verdict{}))}, 0);
    EXPECT_EQ(time_in(history, JobState::productive, 99s), 18);
}

TEST(JobHistory, KeepsTheNewestEventsWithinItsBound) {
    JobHistory history("j");
    for (int i = 0; i < 5000; ++i) {
        history.record({event(std::chrono::seconds(i), JobEvent::Kind::joined)}, i);
    }
    EXPECT_EQ(history.last_number(), 5000U);
    EXPECT_LE(history.events().size(), JobHistory::kEventsMax);
    EXPECT_EQ(history.events().back().number, 5000U);
    history.limit(1);
    EXPECT_EQ(history.events().size(), 1U);
}

TEST(JobHistory, KeepsAFewHundredSamplesOfALongJob) {
    JobHistory history("j");
    history.record({event(0s, JobEvent::Kind::joined), event(0s, JobEvent::Kind::running)}, 0);
    for (int i = 1; i < 20000; ++i) {
        history.reached(at(std::chrono::seconds(i)), static_cast<std::uint64_t>(i) * 3);
    }
    EXPECT_LE(history.samples().size(), StepSeries::kSamplesMax);
    EXPECT_GE(history.samples().size(), StepSeries::kSamplesMax / 4);
    EXPECT_NEAR(history.step_rate(at(20000s), 10s), 3, 0.01);
    EXPECT_EQ(history.step_rate(at(30000s), 10s), 0);
}

TEST(JobHistory, RateCountsUpToNowOnceTheNextStepIsLate) {
    JobHistory history("j");
    history.record({event(0s, JobEvent::Kind::joined), event(0s, JobEvent::Kind::running)}, 0);
    EXPECT_EQ(history.stalled_for(at(60s), 10s), std::nullopt);  // It may not tell its steps.
    for (int i = 1; i <= 100; ++i) {
        history.reached(at(i * 200ms), static_cast<std::uint64_t>(i) * 9);
    }
    EXPECT_NEAR(history.step_rate(at(20s), 10s), 45, 1);
    EXPECT_EQ(history.stalled_for(at(30s), 10s), std::nullopt);
    EXPECT_LT(history.step_rate(at(25s), 10s), 30);
    EXPECT_LT(history.step_rate(at(28s), 10s), 12);
    EXPECT_EQ(history.step_rate(at(31s), 10s), 0);
    EXPECT_EQ(history.stalled_for(at(32s), 10s), Duration(12s));
    // The round ends and the next one trains: its time counts anew.
    history.record({event(33s, JobEvent::Kind::ending, Cause("it stood still"))}, 0);
    EXPECT_EQ(history.stalled_for(at(50s), 10s), std::nullopt);
    history.record({event(50s, JobEvent::Kind::running)}, 0);
    EXPECT_EQ(history.stalled_for(at(59s), 10s), std::nullopt);
    EXPECT_EQ(history.stalled_for(at(62s), 10s), Duration(12s));
}

TEST(JobHistory, SlowStepsHaveARateAndAreNotStalled) {
    JobHistory history("j");
    history.record({event(0s, JobEvent::Kind::joined), event(0s, JobEvent::Kind::running)}, 0);
    for (int i = 1; i <= 3; ++i) {
        history.reached(at(i * 30s), static_cast<std::uint64_t>(i));
    }
    EXPECT_NEAR(history.step_rate(at(100s), 10s), 1.0 / 30, 0.001);
    EXPECT_NEAR(history.step_rate(at(119s), 10s), 1.0 / 30, 0.001);
    EXPECT_LT(history.step_rate(at(150s), 10s), 1.0 / 50);
    EXPECT_EQ(history.stalled_for(at(200s), 10s), std::nullopt);
    EXPECT_TRUE(history.stalled_for(at(241s), 10s));
}

TEST(EventLine, SaysHowManyRanksHaveFinished) {
    PartialFinish finish;
    finish.finished = RankSet(RankSet::Range{1, 1});
    finish.awaited = RankSet(RankSet::Range{2, 3});
    finish.since = 8s;
    JobHistory history("j");
    history.record({event(8s, JobEvent::Kind::finished, finish)}, 0);
    const auto line = nlohmann::json::parse(*history.events().back().line);
    EXPECT_EQ(line.at("event"), "finished");
    EXPECT_EQ(line.at("finished"), 1);
    EXPECT_EQ(line.at("awaited"), 3);
}

TEST(JobsJson, SaysThatAJobStandsStillAndWhichRanksHaveFinished) {
    JobView view;
    view.job = "j";
    view.state = JobState::productive;
    view.status.situation = "round 1 is running on 1 node";
    view.stalled = view.last_step = 12s;
    view.status.nodes.emplace_back();
    view.status.nodes[0].finished.add({1, 100});
    view.status.situation.partial_finish.finished = view.status.nodes[0].finished;
    const auto job = nlohmann::json::parse(jobs_json({view}, std::size_t{1} << 16U))["jobs"][0];
    EXPECT_EQ(job.at("state"), "stalled");
    EXPECT_EQ(job.at("last_step_s"), 12);
    EXPECT_EQ(job.at("text"), "round 1 is running on 1 node; no step for 12 s");
    EXPECT_EQ(job.at("partial_finish").at("finished"), 100);
    EXPECT_EQ(job.at("nodes").at(0).at("finished_ranks").size(), 64U);
    EXPECT_EQ(job.at("nodes").at(0).at("finished_ranks").at(63), 64);
}

TEST(EventLine, HasTheTimeTheJobAndTheDetails) {
    JobHistory history("nightly");
    WorkerFailure failure;
    failure.rank = 3;
    failure.node = "b";
    failure.signal = 9;
    JobEvent failed = event(1500ms, JobEvent::Kind::failed, Boxed<WorkerFailure>(failure));
    failed.node = "b";
    history.record({failed}, 1'700'000'000'123);
    const auto line = nlohmann::json::parse(*history.events().back().line);
    EXPECT_EQ(line.at("time"), "2023-11-14T22:13:20.123Z");
    EXPECT_EQ(line.at("job"), "nightly");
    EXPECT_EQ(line.at("event"), "failed");
    EXPECT_EQ(line.at("job_time_s"), 1.5);
    EXPECT_EQ(line.at("rank"), 3);
    EXPECT_EQ(line.at("signal"), "SIGKILL");
    EXPECT_EQ(line.at("exit_code"), 137);
}

TEST(JobsJson, HasAVersionAndTheTotals) {
    JobView view;
    view.job = "j";
    view.totals.time[static_cast<std::size_t>(JobState::productive)] = 2500ms;
    view.samples = {{at(1s), 5}, {at(2s), 9}};
    const auto object = nlohmann::json::parse(jobs_json({view}, std::size_t{1} << 16U));
    EXPECT_EQ(object.at("version"), kViewVersion);
    const auto& job = object.at("jobs").at(0);
    EXPECT_EQ(job.at("totals").at("time_s").at("productive"), 2.5);
    EXPECT_EQ(job.at("step_samples").at(1).at(1), 9);
}

}  // namespace
}  // namespace regroup::rendezvous
