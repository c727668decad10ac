// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "launcher/report.h"
#include "launcher/torchrun_report.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/text/describe.h"
#include "tests/support/words.h"

namespace regroup::launcher {
namespace {

using rendezvous::Outcome;
using rendezvous::Verdict;
using rendezvous::WorkerFailure;

Verdict failed() {
    Verdict verdict;
    verdict.outcome = Outcome::failed;
    verdict.reason = "rank 5 on b was ended by SIGSEGV; all 3 restarts used (--max-restarts 3)";
    verdict.author = "node b";
    verdict.exit_code = 139;
    verdict.restarts = 3;
    WorkerFailure failure;
    failure.rank = 5;
    failure.local_rank = 1;
    failure.node = "b";
    failure.host = "b.cluster";
    failure.pid = 4720;
    failure.signal = 11;
    failure.core_dumped = true;
    failure.time = "2026-11-21 10:05:26";
    failure.log_file = "regroup-runs/nightly/round-4/rank-5.log";
    failure.last_output = "step 812\nloading shard 14\n";
    verdict.failure = failure;
    return verdict;
}

// As they are printed.
std::string joined(const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines) {
        text += printable(line) + "\n";
    }
    return text;
}

std::string joined_report(const std::string& job, const Verdict& verdict) {
    return joined(failure_report(job, verdict));
}

std::string joined_summary(const std::string& entry_point, const WorkerFailure& failure) {
    return joined(torchrun_summary(entry_point, failure));
}

TEST(LauncherReport, ReportHasTheFirstFailureWithPlaceAndEnd) {
    EXPECT_EQ(joined_report("nightly", failed()),
              "regroup: job nightly failed: rank 5 on b was ended by SIGSEGV; all 3 restarts used "
              "(--max-restarts 3)\n"
              "Root Cause (first observed failure):\n"
              "  rank       5 (local rank 1 on node b)\n"
              "  host       b.cluster, pid 4720\n"
              "  end        ended by SIGSEGV, core dumped\n"
              "  time       2026-11-21 10:05:26\n"
              "  output     regroup-runs/nightly/round-4/rank-5.log\n"
              "  last lines:\n"
              "    step 812\n"
              "    loading shard 14\n");
}

TEST(LauncherReport, ReportOmitsUnknownFields) {
    Verdict verdict = failed();
    verdict.failure->signal = 0;
    verdict.failure->exit_code = 3;
    verdict.failure->log_file.clear();
    verdict.failure->last_output.clear();
    const std::string report = joined_report("nightly", verdict);
    EXPECT_THAT(report, ::testing::HasSubstr("  end        exited with code 3\n"));
    EXPECT_THAT(report, ::testing::Not(::testing::HasSubstr("output")));
    EXPECT_THAT(report, ::testing::Not(::testing::HasSubstr("last lines")));
    verdict.failure.reset();
    EXPECT_EQ(joined_report("nightly", verdict),
              "regroup: job nightly failed: " + describe(verdict.reason) + "\n");
}

TEST(LauncherReport, WorkerThatCouldNotStartIsReportedAsSuch) {
    Verdict verdict = failed();
    verdict.failure->signal = 0;
    verdict.failure->start_error = "no memory";
    EXPECT_THAT(joined_report("nightly", verdict),
                ::testing::HasSubstr("  end        could not start: no memory\n"));
}

TEST(LauncherReport, JobWithoutAnIdIsExplained) {
    EXPECT_EQ(job_text("nightly"), "job nightly");
    EXPECT_EQ(job_text("none"), "job none (no --rdzv-id)");
}

TEST(LauncherReport, EndingLineNamesTheAuthorOfAStop) {
    agent::Quit quit;
    quit.verdict.emplace();
    quit.verdict->outcome = Outcome::stopped;
    quit.verdict->author = "the operator";
    quit.verdict->reason = "maintenance";
    EXPECT_EQ(ending_line("nightly", quit), "job nightly was stopped by the operator: maintenance");
}

TEST(LauncherReport, SuccessHasNoLineAndOtherEndingsHaveTheirReason) {
    agent::Quit quit;
    EXPECT_EQ(ending_line("nightly", quit), "");
    quit.exit_code = 3;
    quit.reason.cause = agent::QuitCause::no_rendezvous;
    quit.reason.limit = std::chrono::minutes(10);
    EXPECT_EQ(ending_line("nightly", quit),
              "no rendezvous was reached within 600 s (--join-timeout)");
    quit.reason = {};
    quit.verdict.emplace();
    quit.verdict->outcome = Outcome::succeeded;
    quit.verdict->reason = "all workers finished";
    EXPECT_EQ(ending_line("nightly", quit), "");
}

constexpr const char* kForged = "x\nregroup: job nightly has succeeded\x1b[8m\u202e";
constexpr const char* kShown = "x\\x0aregroup: job nightly has succeeded\\x1b[8m\\u202e";

Verdict hostile() {
    Verdict verdict = failed();
    WorkerFailure& failure = *verdict.failure;
    for (std::string* text : {&failure.node, &failure.host, &failure.time, &failure.evidence,
                              &failure.error_file, &failure.log_file}) {
        *text = kForged;
    }
    failure.error_message = failure.last_output = kForged;
    return verdict;
}

TEST(LauncherReport, TextOfAPeerMakesNoLineOfItsOwn) {
    const std::string report = joined_report(kForged, hostile());
    EXPECT_THAT(report, ::testing::HasSubstr("local rank 1 on node " + std::string(kShown)));
    EXPECT_THAT(report, ::testing::HasSubstr("    regroup: job nightly has succeeded\\x1b[8m"))
        << "a text of several lines is indented";
    EXPECT_THAT(report, ::testing::Not(::testing::HasSubstr("\nregroup: job nightly has")));
    EXPECT_THAT(report, ::testing::Not(::testing::HasSubstr("\x1b")));
    EXPECT_THAT(report, ::testing::Not(::testing::HasSubstr("\u202e")));
}

TEST(TorchrunSummary, TextOfAPeerMakesNoLineOfItsOwn) {
    const std::string summary = joined_summary(kForged, *hostile().failure);
    EXPECT_THAT(summary, ::testing::HasSubstr("  host      : " + std::string(kShown)));
    EXPECT_THAT(summary, ::testing::Not(::testing::HasSubstr("\nregroup: job nightly has")));
    EXPECT_THAT(summary, ::testing::Not(::testing::HasSubstr("\x1b")));
}

// ---- torchrun's summary, to the byte.

TEST(TorchrunSummary, SummaryHasTheLayoutOfASignal) {
    const std::string border(54, '=');
    EXPECT_EQ(joined_summary("train.py", *failed().failure),
              border + "\ntrain.py FAILED\n" + std::string(54, '-') +
                  "\nFailures:\n  <NO_OTHER_FAILURES>\n" + std::string(54, '-') +
                  "\nRoot Cause (first observed failure):\n"
                  "[0]:\n"
                  "  time      : 2026-11-21_10:05:26\n"
                  "  host      : b.cluster\n"
                  "  rank      : 5 (local_rank: 1)\n"
                  "  exitcode  : -11 (pid: 4720)  (SIGSEGV)\n"
                  "  error_file: <N/A>\n"
                  "  traceback : Signal 11 (SIGSEGV) received by PID 4720\n" +
                  border + "\n");
}

TEST(TorchrunSummary, SummaryIndentsTheTracebackOfAnErrorFile) {
    WorkerFailure failure = *failed().failure;
    failure.signal = 0;
    failure.exit_code = 1;
    failure.error_file = "/logs/error.json";
    failure.error_message = "Traceback:\n  at 12\nValueError: x\n";
    const std::string summary = joined_summary("train.py", failure);
    EXPECT_THAT(summary, ::testing::HasSubstr("  exitcode  : 1 (pid: 4720) \n"
                                              "  error_file: /logs/error.json\n"
                                              "  traceback : Traceback:\n"
                                              "    at 12\n"
                                              "  ValueError: x\n"));
}

TEST(TorchrunSummary, SummaryIsAtMostSixtyWide) {
    const std::string summary = joined_summary(std::string(100, 'p'), *failed().failure);
    EXPECT_EQ(summary.substr(0, 61), std::string(60, '=') + "\n");
}

TEST(LauncherReport, GoodputLineSumsUpTheRecoveries) {
    rendezvous::Goodput goodput;
    EXPECT_EQ(describe(goodput), "");
    goodput.lasted = std::chrono::seconds(35);
    EXPECT_EQ(describe(goodput), "") << "nothing was lost";
    goodput.count = 3;
    goodput.lost = std::chrono::milliseconds(41);
    EXPECT_EQ(describe(goodput), "3 recoveries took 41 ms; 99.9 % of 35 s spent training");
    goodput.cut_short = 2;
    EXPECT_EQ(describe(goodput),
              "3 recoveries, 2 of them cut short, took 41 ms; 99.9 % of 35 s spent training");
    goodput.planned = 1;
    EXPECT_EQ(describe(goodput),
              "2 recoveries and 1 planned change, 2 of them cut short, took 41 ms; 99.9 % of 35 s "
              "spent training");
    goodput.planned = 3;
    goodput.cut_short = 0;
    EXPECT_EQ(describe(goodput), "3 planned changes took 41 ms; 99.9 % of 35 s spent training");
    goodput.planned = 0;
    goodput.count = goodput.cut_short = 1;
    EXPECT_EQ(describe(goodput),
              "1 recovery, cut short, took 41 ms; 99.9 % of 35 s spent training");
    goodput.cut_short = 0;
    goodput.lost_steps = 512;
    EXPECT_EQ(describe(goodput),
              "1 recovery took 41 ms; 99.9 % of 35 s spent training; 512 steps were "
              "done again");
    goodput.lost_at_least = true;
    EXPECT_EQ(describe(goodput),
              "1 recovery took 41 ms; up to 99.9 % of 35 s spent training; 512 steps "
              "or more were done again");
    goodput.lost_steps = 0;
    EXPECT_EQ(describe(goodput),
              "1 recovery took 41 ms; up to 99.9 % of 35 s spent training; it is not known "
              "how many steps were done again");
    goodput.lost_at_least = false;
    goodput.lost = std::chrono::milliseconds(7);
    goodput.lasted = std::chrono::hours(1);
    EXPECT_EQ(describe(goodput), "1 recovery took 7 ms; 99.9998 % of 1 h spent training");
    goodput.lost = std::chrono::minutes(30);
    EXPECT_EQ(describe(goodput), "1 recovery took 1800 s; 50.0 % of 1 h spent training");
    goodput.lost = std::chrono::hours(2);
    EXPECT_EQ(describe(goodput), "1 recovery took 7200 s; 0.0 % of 1 h spent training");
    goodput.lost = std::chrono::minutes(1);
    goodput.lost_at_end = std::chrono::minutes(5);
    EXPECT_EQ(describe(goodput),
              "1 recovery took 60 s and the end of the job 300 s; 90.0 % of 1 h spent training");
    goodput.lost_at_end = Duration::zero();
    goodput.until_start = 1;
    EXPECT_EQ(describe(goodput),
              "1 restart, programs running again after 60 s; up to 98.3 % of 1 h spent training");
    goodput.count = goodput.until_start = 2;
    EXPECT_EQ(describe(goodput),
              "2 restarts, programs running again after 60 s; up to 98.3 % of 1 h spent training");
    goodput.until_start = 1;
    EXPECT_EQ(describe(goodput), "2 recoveries took 60 s; up to 98.3 % of 1 h spent training");
}

}  // namespace
}  // namespace regroup::launcher
