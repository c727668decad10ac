// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/view/metrics_text.h"

#include <chrono>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "rendezvous/view/job_history.h"
#include "tests/support/matchers.h"
#include "tests/unit/job_events.h"

namespace regroup::rendezvous {
namespace {

using namespace std::chrono_literals;
using testing::at;
using testing::event;

JobView view_of(const JobHistory& history, Duration now) {
    JobView view;
    view.job = "nightly";
    view.began_ms = 1'000'000;
    view.now = at(now);
    view.state = history.state();
    view.totals = history.totals(view.now);
    return view;
}

JobStatus::Node node(const std::string& name, const std::string& id) {
    JobStatus::Node node;
    node.name = name;
    node.id = id;
    node.place = JobStatus::Membership::member;
    node.step = 7;
    return node;
}

/// A job with two nodes of one name, and all that a job can have.
JobView full_job(const std::string& id = "nightly") {
    JobView view;
    view.job = id;
    view.began_ms = 1'764'000'000'123;
    view.last_step_ms = view.last_loss.failure_ms = view.last_loss.recovery_ms = 1'764'000'100'000;
    view.status.phase = Phase::training;
    view.status.world_size = 16;
    view.status.step = 12345;
    view.status.nodes = {node("n0", "n0-1-aa"), node("n0", "n0-2-bb")};
    view.status.quarantined.push_back({.node = "n9"});
    view.status.budgets = {{JobStatus::Budget::Kind::failures, 1, 3},
                           {JobStatus::Budget::Kind::hangs, 0, std::nullopt}};
    Incident incident;
    incident.detect = 20ms;
    incident.first_step = 1500ms;
    view.status.incidents = {incident};
    view.state = JobState::productive;
    view.step_rate = 2.5;
    view.totals.time[0] = 1500ms;
    Telemetry telemetry;
    telemetry.counters.steps = 12;
    telemetry.counters.data = 250ms;
    telemetry.values = {{"loss", 0.75}};
    view.slow_ranks = {{3, 0.5}};
    view.telemetry.hear("n0", telemetry, at(1s));
    view.snapshots.hear({.step = 12, .kept_step = 10, .bytes = 4096}, view.now - 3s);
    view.totals.restarts[static_cast<std::size_t>(CauseWord::failure)] = 1;
    for (std::size_t i = 0; i < kStageNames.size(); ++i) {
        view.totals.recoveries[i].add(stages(incident)[i]);
    }
    return view;
}

DaemonCounters busy_daemon() {
    DaemonCounters daemon;
    daemon.began_ms = 1'764'000'000'000;
    daemon.messages_in = 10;
    daemon.refusals = {{"eviction", 1}};
    daemon.silences.add(0.21);
    daemon.silences.add(3);
    daemon.delays.add(2ms);
    return daemon;
}

std::string text_of(const std::vector<JobView>& jobs, MetricsFormat format, bool nodes = false) {
    const DaemonCounters daemon = busy_daemon();
    return metrics_text(jobs, &daemon, {format, nodes});
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) {
        lines.push_back(line);
    }
    return lines;
}

/// The samples of a text: what is before the last space of a line, and what is behind it.
std::map<std::string, double> samples_of(const std::string& text) {
    std::map<std::string, double> samples;
    for (const std::string& line : lines_of(text)) {
        if (line[0] == '#') {
            continue;
        }
        const std::size_t space = line.rfind(' ');
        const bool is_new =
            samples.emplace(line.substr(0, space), std::stod(line.substr(space + 1))).second;
        EXPECT_TRUE(is_new) << line;
    }
    return samples;
}

std::string name_of(const std::string& series) {
    return series.substr(0, series.find('{'));
}

bool is_counter(const std::string& series) {
    const std::string name = name_of(series);
    for (const std::string end : {"_total", "_bucket", "_sum", "_count"}) {
        if (name.ends_with(end)) {
            return true;
        }
    }
    return false;
}

double value(const std::vector<JobView>& jobs, const std::string& series) {
    const auto samples = samples_of(text_of(jobs, MetricsFormat::openmetrics, true));
    const auto found = samples.find(series);
    return found == samples.end() ? -1 : found->second;
}

TEST(MetricsText, SamplesFollowTheHeadOfTheirFamily) {
    const std::map<std::string, std::vector<std::string>> endings{
        {"counter", {"_total"}},
        {"gauge", {""}},
        {"info", {"_info"}},
        {"histogram", {"_bucket", "_sum", "_count"}}};
    for (const auto format : {MetricsFormat::prometheus, MetricsFormat::openmetrics}) {
        const std::string text = text_of({full_job("a"), full_job("b")}, format, true);
        std::set<std::string> families;
        std::string family;
        std::string type;
        for (const std::string& line : lines_of(text)) {
            std::istringstream words(line);
            std::string mark;
            std::string what;
            std::string name;
            words >> mark >> what >> name;
            if (line == "# EOF") {
                continue;
            }
            if (mark == "#" && what == "HELP") {
                family = name;
                EXPECT_TRUE(families.insert(name).second) << "again: " << line;
                continue;
            }
            if (mark == "#") {
                EXPECT_EQ(name, family) << line;
                if (what == "TYPE") {
                    words >> type;
                } else {
                    ASSERT_EQ(what, "UNIT") << line;
                    words >> what;
                    EXPECT_THAT(family, EndsWith("_" + what));
                }
                continue;
            }
            ASSERT_TRUE(endings.contains(type)) << line;
            const std::string name_here = name_of(line.substr(0, line.rfind(' ')));
            bool fits = format == MetricsFormat::prometheus && name_here == family;
            for (const std::string& ending : endings.at(type)) {
                fits = fits || name_here == family + ending;
            }
            EXPECT_TRUE(fits) << line << " in " << family;
        }
        EXPECT_GT(families.size(), 30U);
        EXPECT_GT(samples_of(text).size(), 400U);
    }
}

TEST(MetricsText, FormatsDifferInHeadsAndInTheEnd) {
    const std::string open = text_of({full_job()}, MetricsFormat::openmetrics);
    EXPECT_THAT(open, EndsWith("\n# EOF\n"));
    EXPECT_THAT(open, AllOf(StartsWith("# HELP regroup "),
                            HasSubstr("# TYPE regroup info\nregroup_info{version=\"" REGROUP_VERSION
                                      "\"} 1\n"),
                            HasSubstr("# TYPE regroup_job_lost_steps counter\n"
                                      "regroup_job_lost_steps_total{job_id=\"nightly\"} 0\n"),
                            HasSubstr("# UNIT regroup_recovery_seconds seconds\n")));
    const std::string plain = text_of({full_job()}, MetricsFormat::prometheus);
    EXPECT_THAT(plain, saying(Not(HasSubstr("EOF")), Not(HasSubstr("UNIT")), EndsWith("\n"),
                              "# TYPE regroup_info gauge\n",
                              "# TYPE regroup_job_lost_steps_total counter\n"));
    EXPECT_EQ(samples_of(open), samples_of(plain)) << "a series has one name in both";
}

TEST(MetricsText, LabelsAreEscaped) {
    EXPECT_EQ(MetricsWriter::labels({{"job_id", "a\"b\\c"}, {"x", "\u00fc, {}"}}),
              "job_id=\"a\\\"b\\\\\\\\c\",x=\"\u00fc, {}\"");
    // Prometheus ends at a zero byte.
    EXPECT_EQ(MetricsWriter::labels({{"x", std::string_view("a\0b\nc\xff", 6)}}),
              R"(x="a\\x00b\\x0ac\\xff")");
    MetricsWriter writer(MetricsFormat::openmetrics);
    writer.family("x", MetricsWriter::Type::gauge, "a \"b\"\nc\\");
    writer.sample("", {{"y", "a\"b\nc\\"}}, std::uint64_t{1});
    EXPECT_EQ(
        writer.take(),
        "# HELP x a \\\"b\\\"\\nc\\\\\n# TYPE x gauge\nx{y=\"a\\\"b\\\\x0ac\\\\\\\\\"} 1\n# EOF\n");
}

TEST(MetricsText, DifferentLabelsStayDifferent) {
    const std::vector<std::string> values{"a\u2028b", "a\\u2028b", "a\\\\u2028b", "\xff", "\\xff",
                                          "\u00ad",   "\\\\",      "\\",          "\n",   "\\x0a"};
    std::set<std::string> labels;
    for (const std::string& value : values) {
        labels.insert(MetricsWriter::labels({{"job_id", value}}));
    }
    EXPECT_EQ(labels.size(), values.size());
}

TEST(MetricsText, HistogramsAreCumulative) {
    const std::string job = "regroup_recovery_seconds_";
    const auto of = [&](const std::string& part, const std::string& more = "") {
        return value({full_job()},
                     job + part + "{job_id=\"nightly\",stage=\"first_step\"" + more + "}");
    };
    EXPECT_EQ(of("bucket", ",le=\"1.0\""), 0);
    EXPECT_EQ(of("bucket", ",le=\"2.5\""), 1);
    EXPECT_EQ(of("bucket", ",le=\"+Inf\""), 1);
    EXPECT_EQ(of("count"), 1);
    EXPECT_EQ(of("sum"), 1.5);
    EXPECT_EQ(value({}, "regroup_daemon_silence_ratio_bucket{le=\"0.3\"}"), 1);
    EXPECT_EQ(value({}, "regroup_daemon_silence_ratio_bucket{le=\"1.0\"}"), 1);
    EXPECT_EQ(value({}, "regroup_daemon_silence_ratio_count"), 2);
}

TEST(MetricsText, JobsAreTold) {
    const std::vector<JobView> jobs{full_job(), full_job("other")};
    EXPECT_EQ(value(jobs, R"(regroup_job_step{job_id="nightly"})"), 12345);
    EXPECT_EQ(value(jobs, R"(regroup_job_steps_per_second{job_id="other"})"), 2.5);
    EXPECT_EQ(value(jobs, R"(regroup_job_nodes{job_id="nightly",place="member"})"), 2);
    EXPECT_EQ(value(jobs, R"(regroup_job_nodes{job_id="nightly",place="away"})"), 0);
    EXPECT_EQ(value(jobs, R"(regroup_job_seconds_total{job_id="nightly",state="waiting"})"), 1.5);
    EXPECT_EQ(value(jobs, R"(regroup_job_restarts_total{job_id="nightly",cause="failure"})"), 1);
    EXPECT_EQ(value(jobs, R"(regroup_job_restarts_total{job_id="nightly",cause="hang"})"), 0);
    EXPECT_EQ(value(jobs, R"(regroup_job_budget_allowed{job_id="nightly",budget="failures"})"), 3);
    EXPECT_EQ(value(jobs, R"(regroup_job_budget_allowed{job_id="nightly",budget="hangs"})"), -1)
        << "there is no limit";
    EXPECT_EQ(value(jobs, R"(regroup_job_start_timestamp_seconds{job_id="nightly"})"),
              1'764'000'000.123);
    EXPECT_EQ(value(jobs, R"(regroup_job_last_recovery_seconds{job_id="other",stage="detect"})"),
              0.02);
    EXPECT_EQ(value(jobs, R"(regroup_daemon_jobs{phase="training"})"), 2);
    EXPECT_EQ(value(jobs, R"(regroup_training_steps_total{job_id="nightly"})"), 12);
    EXPECT_EQ(value(jobs, R"(regroup_training_seconds_total{job_id="nightly",part="data"})"), 0.25);
    EXPECT_EQ(value(jobs, R"(regroup_training_value{job_id="nightly",name="loss"})"), 0.75);
    EXPECT_EQ(value(jobs, R"(regroup_training_slow_rank_excess_ratio{job_id="nightly",rank="3"})"),
              0.5);
    EXPECT_EQ(value(jobs, R"(regroup_snapshot_step{job_id="nightly",state="whole"})"), 12);
    EXPECT_EQ(value(jobs, R"(regroup_snapshot_step{job_id="nightly",state="kept"})"), 10);
    EXPECT_EQ(value(jobs, R"(regroup_snapshot_step{job_id="nightly",state="written"})"), -1);
    EXPECT_EQ(value(jobs, R"(regroup_snapshot_age_seconds{job_id="nightly"})"), 3);
    EXPECT_EQ(value(jobs, R"(regroup_snapshot_memory_bytes{job_id="nightly"})"), 4096);
    JobView young;
    young.job = "young";
    EXPECT_EQ(value({young}, R"(regroup_job_last_failure_timestamp_seconds{job_id="young"})"), -1)
        << "it never happened";
}

TEST(MetricsText, StateOfAClosedJobIsItsOutcome) {
    JobView job = full_job();
    job.status.phase = Phase::closed;
    job.status.verdict = Verdict();
    job.status.verdict->outcome = Outcome::failed;

    const std::string text = metrics_text({job}, nullptr, {});

    EXPECT_THAT(text, saying("state=\"failed\"} 1\n", "state=\"productive\"} 0\n"));
}

TEST(MetricsText, NodesAreToldOnRequestOnly) {
    JobView job = full_job();
    const std::size_t without = samples_of(text_of({job}, MetricsFormat::prometheus)).size();
    const std::size_t with = samples_of(text_of({job}, MetricsFormat::prometheus, true)).size();
    EXPECT_EQ(with - without, 5 * job.status.nodes.size());
    EXPECT_EQ(value({job}, R"(regroup_node_up{job_id="nightly",node="n0",node_id="n0-2-bb"})"), 1);
    job.status.nodes.resize(100, job.status.nodes[0]);
    EXPECT_EQ(samples_of(text_of({job}, MetricsFormat::prometheus)).size(), without);
}

TEST(MetricsText, EveryMetricIsDocumented) {
    std::ifstream file(REGROUP_SOURCE_DIR "/docs/metrics.md");
    std::set<std::string> documented;
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with("| `regroup_")) {
            documented.insert(line.substr(3, line.find('`', 3) - 3));
        }
    }
    std::set<std::string> served;
    const std::string mark = "# TYPE ";
    for (const std::string& line :
         lines_of(text_of({full_job()}, MetricsFormat::prometheus, true))) {
        if (line.starts_with(mark)) {
            served.insert(line.substr(mark.size(), line.rfind(' ') - mark.size()));
        }
    }
    EXPECT_EQ(served, documented);
}

TEST(MetricsText, AJobHasAboutTwoHundredSamples) {
    const std::vector<JobView> none;
    const std::size_t without = samples_of(metrics_text(none, nullptr, {})).size();
    EXPECT_EQ(without, 1U);
    const std::size_t with = samples_of(metrics_text({full_job()}, nullptr, {})).size();
    EXPECT_LE(with - without, 225U);
}

TEST(MetricsText, CountersNeverDecrease) {
    const auto failed = Cause(Cause::Failed{WorkerFailure{}});
    const auto lost = [&](std::uint64_t step) {
        Incident incident;
        incident.cause = failed;
        incident.stop = 1s;
        incident.lost_steps = 40;
        incident.step = step;
        return Boxed<Incident>(incident);
    };
    const std::map<Duration, std::vector<JobEvent>> story{
        {0s, {event(0s, JobEvent::Kind::joined), event(0s, JobEvent::Kind::assigned)}},
        {5s, {event(5s, JobEvent::Kind::running)}},
        // A failure, and work that is done again.
        {20s, {event(20s, JobEvent::Kind::ending, failed)}},
        {22s, {event(22s, JobEvent::Kind::assigned)}},
        {25s,
         {event(25s, JobEvent::Kind::running), event(25s, JobEvent::Kind::recovered, lost(60))}},
        // The next failure comes before that work is done.
        {28s, {event(28s, JobEvent::Kind::ending, failed)}},
        {29s, {event(29s, JobEvent::Kind::assigned)}},
        {30s,
         {event(30s, JobEvent::Kind::running), event(30s, JobEvent::Kind::recovered, lost(50))}},
        // A planned change, during which a worker fails.
        {40s, {event(40s, JobEvent::Kind::changing, Cause())}},
        {41s, {event(41s, JobEvent::Kind::assigned)}},
        {44s, {event(44s, JobEvent::Kind::ending, failed)}},
        {46s, {event(46s, JobEvent::Kind::assigned)}},
        {47s, {event(47s, JobEvent::Kind::running)}},
        {60s, {event(60s, JobEvent::Kind::closed, Boxed<Verdict>(Verdict{}))}}};
    const std::map<Duration, std::uint64_t> steps{{10s, 50},  {19s, 100}, {26s, 70}, {32s, 95},
                                                  {35s, 101}, {39s, 110}, {50s, 120}};
    JobHistory history("nightly");
    std::map<std::string, double> before;
    for (Duration now = 0s; now < 70s; now += 250ms) {
        if (const auto found = story.find(now); found != story.end()) {
            history.record(found->second, 1000);
        }
        if (const auto found = steps.find(now); found != steps.end()) {
            history.reached(at(now), found->second);
        }
        const auto samples =
            samples_of(text_of({view_of(history, now)}, MetricsFormat::prometheus));
        for (const auto& [series, value] : samples) {
            if (is_counter(series) && before.contains(series)) {
                EXPECT_GE(value, before.at(series)) << series << " at " << format_duration(now);
            }
        }
        before = samples;
    }
    EXPECT_EQ(before.at(R"(regroup_job_lost_steps_total{job_id="nightly"})"), 80);
    double all = 0;
    for (const auto& [series, value] : before) {
        all += name_of(series) == "regroup_job_seconds_total" ? value : 0;
    }
    EXPECT_EQ(all, 60) << "all time of the job is in one of the states";
}

TEST(MetricsFormat, OpenMetricsIsServedIfItIsAskedFor) {
    const std::string prometheus_2_42 =
        "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;"
        "q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    for (const std::string& accept :
         {prometheus_2_42, std::string("application/openmetrics-text"),
          std::string("text/plain;q=0.5, Application/OpenMetrics-Text ; version=\"1.0.0\"")}) {
        EXPECT_EQ(metrics_format(accept), MetricsFormat::openmetrics) << accept;
    }
    for (const std::string accept :
         {"", "*/*", "text/html,*/*;q=0.8", "text/plain;version=0.0.4",
          "application/openmetrics-text;version=2.0.0", "application/openmetrics-text;q=0",
          "application/openmetrics-text;q=0.2,text/plain;q=0.3", ";;,,=;q=", "a/b;q"}) {
        EXPECT_EQ(metrics_format(accept), MetricsFormat::prometheus) << accept;
    }
    EXPECT_EQ(content_type(MetricsFormat::openmetrics),
              "application/openmetrics-text; version=1.0.0; charset=utf-8");
    EXPECT_EQ(content_type(MetricsFormat::prometheus), "text/plain; version=0.0.4; charset=utf-8");
}

}  // namespace
}  // namespace regroup::rendezvous
