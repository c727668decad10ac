// SPDX-License-Identifier: Apache-2.0
//
// The JSON of a job's view.
#include "rendezvous/view/job_view.h"

#include <chrono>
#include <limits>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "rendezvous/view/event_line.h"
#include "rendezvous/view/job_history.h"
#include "rendezvous/view/json_writer.h"
#include "tests/unit/job_events.h"

namespace regroup::rendezvous {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::at;

json of_job(const JobView& view) {
    return json::parse(jobs_json({view}, 1U << 16U)).at("jobs").at(0);
}

Telemetry telemetry(std::uint64_t steps) {
    Telemetry told;
    told.pid = 7;
    told.counters.steps = steps;
    told.counters.samples = steps * 32;
    told.counters.data = steps * milliseconds(1);
    told.counters.compute = steps * milliseconds(4);
    told.counters.communication = steps * milliseconds(2);
    told.counters.waiting = steps * milliseconds(3);
    told.values = {{"loss", 0.5}};
    return told;
}

TEST(JobViewJson, MembersAreLeftOutBeforeNodesThatNeedALook) {
    JobView view;
    for (int i = 0; i < 2000; ++i) {
        JobStatus::Node& node = view.status.nodes.emplace_back();
        node.name = "n" + std::to_string(i);
        node.place = i < 1997 ? JobStatus::Membership::member : JobStatus::Membership::quarantined;
    }

    const json job = of_job(view);

    const json& nodes = job.at("nodes");
    ASSERT_GT(nodes.size(), 10U);
    ASSERT_LT(nodes.size(), 2000U);
    EXPECT_EQ(nodes.size() + job.at("nodes_left_out").get<std::size_t>(), 2000U);
    EXPECT_EQ(nodes.front().at("name"), "n0");
    EXPECT_EQ(nodes.at(nodes.size() - 4).at("name"), "n" + std::to_string(nodes.size() - 4));
    for (std::size_t i = 1; i <= 3; ++i) {
        EXPECT_EQ(nodes.at(nodes.size() - i).at("name"), "n" + std::to_string(2000 - i));
    }
}

TEST(JobViewJson, ManyNodesFillTheRoomThatThereIs) {
    JobView view;
    view.status.nodes.resize(20'000);
    for (JobStatus::Node& node : view.status.nodes) {
        node.name = "node00001";
        node.address = "10.1.100.100";
        node.place = JobStatus::Membership::member;
    }
    constexpr std::size_t kMax = 1U << 20U;

    const std::string text = jobs_json({view}, kMax);

    EXPECT_LE(text.size(), kMax);
    EXPECT_GT(text.size(), kMax / 10 * 9);
    EXPECT_TRUE(json::accept(text));
}

TEST(JobViewJson, StateOfAClosedJobIsItsOutcome) {
    JobView view;
    view.state = JobState::productive;
    EXPECT_EQ(of_job(view).at("state"), "productive");

    view.status.phase = Phase::closed;
    view.status.verdict = Verdict();
    for (const auto& [outcome, word] :
         {std::pair(Outcome::succeeded, "succeeded"), std::pair(Outcome::failed, "failed"),
          std::pair(Outcome::stopped, "stopped")}) {
        view.status.verdict->outcome = outcome;
        EXPECT_EQ(of_job(view).at("state"), word);
    }
}

TEST(JobViewJson, LossesAreToldInSentences) {
    JobView view;
    JobStatus& status = view.status;
    status.goodput.lasted = seconds(3600);
    status.goodput.lost_at_end = seconds(3);
    Incident incident;
    incident.next_round = RoundId{2};
    incident.cause = Cause("node n7 is lost");
    incident.decision = Succession("n3 takes its place");
    incident.step = 600;
    incident.stop = milliseconds(40);
    incident.lost_steps = 512;
    status.incidents.push_back(incident);
    incident.planned = true;
    status.incidents.push_back(incident);
    incident.cut_short = true;
    incident.lost_steps = 0;
    incident.decision = {};
    status.incidents.push_back(incident);
    for (const Incident& one : status.incidents) {
        status.goodput.add(one);
    }
    status.budgets = {{JobStatus::Budget::Kind::failures, 1, 3},
                      {JobStatus::Budget::Kind::hangs, 2, std::nullopt}};

    const json job = of_job(view);

    EXPECT_EQ(
        job.at("recoveries_text"),
        "1 recovery and 2 planned changes, 1 of them cut short, took 120 ms and the end of the "
        "job 3.0 s; 99.9 % of 1 h spent training; 1024 steps were done again");
    EXPECT_EQ(job.at("budgets_text"), "failures 1 of 3, hangs 2");
    const json& incidents = job.at("incidents");
    EXPECT_EQ(incidents.at(0).at("text"),
              "round 2 after 40 ms: node n7 is lost; n3 takes its place; 512 steps to do again");
    EXPECT_THAT(incidents.at(1).at("text"), ::testing::StartsWith("round 2, planned, after 40 ms"));
    EXPECT_EQ(incidents.at(2).at("text"), "round 2, cut short after 40 ms: node n7 is lost");
}

TEST(JobViewJson, TextsAreEscapedAndBytesThatAreNoUtf8AreReplaced) {
    std::string text;
    JsonWriter out(text);
    out.begin_object();
    out.field("quoted", "a \"b\"\n\\ \x01");
    out.field("broken", "caf\xE9 \u65e5");
    out.field("comma", "ends with ,");
    out.field("hidden", "\u202e");
    out.key("list");
    out.begin_array();
    out.value("[");
    out.value(0.1);
    out.value(std::numeric_limits<double>::infinity());
    out.value(std::int64_t{-3});
    out.value(true);
    out.begin_object();
    out.end_object();
    out.end_array();
    out.end_object();

    EXPECT_EQ(json::parse(text), (json{{"quoted", "a \"b\"\n\\ \x01"},
                                       {"broken", "caf\uFFFD \u65e5"},
                                       {"comma", "ends with ,"},
                                       {"hidden", "\u202e"},
                                       {"list", {"[", 0.1, nullptr, -3, true, json::object()}}}));
    EXPECT_THAT(text, ::testing::HasSubstr("\"\\u202e\""));
}

TEST(EventLine, TextsOfOthersAreEscapedForTheTerminal) {
    JobEvent event;
    event.node = "\u202en\u00fc";
    EXPECT_THAT(event_line("nightly", {1, 0, event, nullptr, nullptr}),
                ::testing::HasSubstr("\"node\":\"\\u202en\u00fc\""));
}

TEST(EventLine, HangTellsTheRankThatTheOthersWaitFor) {
    JobEvent event;
    event.kind = JobEvent::Kind::hanging;
    event.detail = Cause(Cause::Hung{RoundId{1}, "rank 0 waits", {}, false, {}});
    EXPECT_FALSE(
        json::parse(event_line("nightly", {1, 0, event, nullptr, nullptr})).contains("rank"));

    HangCulprit culprit;
    culprit.kind = HangCulprit::Kind::awaited;
    culprit.rank = 3;
    event.detail = Cause(Cause::Hung{RoundId{1}, "rank 0 waits", culprit, false, {}});
    EXPECT_EQ(json::parse(event_line("nightly", {1, 0, event, nullptr, nullptr})).at("rank"), 3);
}

TEST(EventLine, SlowRankHasItsExcess) {
    JobEvent event;
    event.kind = JobEvent::Kind::slow;
    event.node = "b";
    event.detail = SlowRank{3, 0.25};
    const json line = json::parse(event_line("nightly", {1, 0, event, nullptr, nullptr}));
    EXPECT_EQ(line.at("event"), "slow");
    EXPECT_EQ(line.at("rank"), 3);
    EXPECT_EQ(line.at("excess"), 0.25);
    EXPECT_EQ(
        line.at("text"),
        "rank 3 on b is slow: outside of collectives it spends 25 % more time than the median "
        "of the others, which wait for it");
}

TEST(JobViewJson, ProgramThatTellsNothingHasNoTelemetry) {
    JobView view;
    view.job = "nightly";

    EXPECT_FALSE(of_job(view).contains("telemetry"));
}

TEST(JobViewJson, FirstTelemetryHasSumsButNoRates) {
    JobView view;
    view.telemetry.hear("node0", telemetry(10), at(seconds(5)));
    view.now = at(seconds(6));

    EXPECT_FALSE(of_job(view).contains("slow_ranks"));
    view.slow_ranks = {{3, 0.25}};
    EXPECT_EQ(of_job(view).at("slow_ranks"), json::parse(R"([{"rank": 3, "excess": 0.25}])"));
    const json told = of_job(view).at("telemetry");

    EXPECT_EQ(told.at("steps"), 10);
    EXPECT_EQ(told.at("samples"), 320);
    EXPECT_DOUBLE_EQ(told.at("silent_s"), 1);
    EXPECT_DOUBLE_EQ(told.at("time_s").at("communication"), 0.02);
    EXPECT_DOUBLE_EQ(told.at("values").at("loss"), 0.5);
    EXPECT_FALSE(told.contains("step_s"));
    EXPECT_FALSE(told.contains("samples_per_s"));
}

TEST(JobViewJson, LaterTelemetryHasTheMeanOfItsSteps) {
    JobView view;
    view.telemetry.hear("node0", telemetry(10), at(seconds(5)));
    view.telemetry.hear("node0", telemetry(30), at(seconds(7)));
    view.now = at(seconds(7));

    const json told = of_job(view).at("telemetry");

    EXPECT_DOUBLE_EQ(told.at("samples_per_s"), 320);
    EXPECT_DOUBLE_EQ(told.at("step_s").at("data"), 0.001);
    EXPECT_DOUBLE_EQ(told.at("step_s").at("compute"), 0.004);
    EXPECT_DOUBLE_EQ(told.at("step_s").at("waiting"), 0.003);
    EXPECT_EQ(told.at("steps"), 30);
}

TEST(JobViewJson, SnapshotsHaveTheAgeOfTheirStep) {
    JobView view;
    EXPECT_FALSE(of_job(view).contains("snapshots"));
    view.snapshots.hear({.step = 40, .bytes = 99}, at(seconds(5)));
    view.snapshots.hear({.step = 40, .kept_step = 40, .written_step = 30}, at(seconds(6)));
    view.now = at(seconds(7));

    const json told = of_job(view).at("snapshots");

    EXPECT_EQ(told.at("step"), 40);
    EXPECT_DOUBLE_EQ(told.at("age_s"), 2);
    EXPECT_EQ(told.at("kept_step"), 40);
    EXPECT_EQ(told.at("written_step"), 30);
    EXPECT_EQ(told.at("memory_bytes"), 0);
}

}  // namespace
}  // namespace regroup::rendezvous
