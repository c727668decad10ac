// SPDX-License-Identifier: Apache-2.0
//
// Tests what `regroup top` shows for an answer of a daemon, and what its keys do. No terminal.
#include <chrono>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "launcher/top/plain_lines.h"
#include "launcher/top/status.h"
#include "launcher/top/table.h"
#include "launcher/top/text_width.h"
#include "launcher/top/view.h"
#include "rendezvous/base/time_text.h"
#include "tests/support/matchers.h"

namespace regroup::launcher::top {
namespace {

constexpr const char* kTime = "21:30:05 UTC";

nlohmann::json node(const std::string& name, std::uint64_t first_rank, std::uint64_t step = 1200) {
    return {{"name", name}, {"address", "10.0.0.1"},    {"place", "member"}, {"state", "running"},
            {"workers", 8}, {"first_rank", first_rank}, {"step", step},      {"silent_s", 0.25}};
}

nlohmann::json nightly() {
    return {{"job", "nightly"},
            {"phase", "training"},
            {"text", "round 3 is running on 2 nodes"},
            {"round", 3},
            {"world_size", 16},
            {"step", 1200},
            {"step_rate", 12.34},
            {"restarts", 1},
            {"age_s", 12000},
            {"totals", {{"time_s", {{"waiting", 60}, {"productive", 987}, {"recovering", 13}}}}},
            {"recoveries_text", "1 recovery took 1.5 s; 99.9 % of 1 h spent training"},
            {"budgets_text", "restarts 1 of 3"},
            {"nodes", {node("n0", 0), node("n12", 8, 1199)}},
            {"quarantined",
             {{{"name", "n7"}, {"text", "node n7 is quarantined for 300 s: 3 failures"}}}},
            {"step_samples", {{0, 0}, {10, 100}, {20, 300}, {30, 300}}},
            {"last_failure",
             {{"time", "2026-11-25T21:20:00.123Z"},
              {"text", "rank 3 on n7 was ended by SIGKILL"},
              {"last_output", "one\ntwo\nthree\nfour\n"}}},
            {"incidents",
             {{{"text", "round 2 after 40 ms: node n7 is lost"}},
              {{"text", "round 3, planned, after 50 ms: n12 has joined"}, {"planned", true}}}}};
}

Status status_of(const std::vector<nlohmann::json>& jobs) {
    return parse_status(nlohmann::json{{"version", 1}, {"jobs", jobs}}.dump()).value();
}

class TopView : public ::testing::Test {
   protected:
    std::vector<std::string> draw(std::size_t columns = 80, std::size_t rows = 24) {
        std::vector<std::string> texts;
        for (const Row& row : view.draw({rows, columns}, now, /*utf8=*/true)) {
            texts.push_back(text_of(row));
        }
        return texts;
    }
    /// The text of the row under the cursor.
    std::string selected() {
        for (const Row& row : view.draw({24, 80}, now, true)) {
            if (!row.empty() && row.front().style == Style::selected) {
                return row.front().text;
            }
        }
        return "";
    }
    void type(const std::string& keys) {
        for (const char key : keys) {
            EXPECT_TRUE(view.press({Key::text, std::string(1, key)})) << key;
            draw();
        }
    }
    void press(Key key) {
        EXPECT_TRUE(view.press({key}));
        draw();
    }

    Instant now{std::chrono::hours(1)};
    View view{"node0:29400", "", std::chrono::seconds(10)};
};

TEST_F(TopView, PhaseOfAClosedJobTellsHowItEnded) {
    nlohmann::json job = nightly();
    job["phase"] = "closed";
    job["verdict"] = {{"outcome", "failed"}};

    EXPECT_THAT(plain_lines(status_of({job}), kTime), ElementsAre(HasSubstr("  failed ")));
    view.take(status_of({job}), now, kTime);
    EXPECT_THAT(draw(), Contains(AllOf(HasSubstr("nightly"), HasSubstr("failed"))));
}

// ---- Widths.

TEST(TopText, WidthCountsWideAndCombiningCharacters) {
    EXPECT_EQ(columns_of("abc"), 3U);
    EXPECT_EQ(columns_of("\u00e9"), 1U);
    EXPECT_EQ(columns_of("e\u0301"), 1U);
    EXPECT_EQ(columns_of("\u65e5\u672c"), 4U);
    EXPECT_EQ(columns_of("\xff"), 1U);
    EXPECT_EQ(columns_of(""), 0U);
}

TEST(TopText, CutTextEndsWithAMarkAndIsNeverTooWide) {
    EXPECT_EQ(cut("abcdef", 6), "abcdef");
    EXPECT_EQ(cut("abcdef", 5), "abcd~");
    EXPECT_EQ(cut("\u65e5\u672c\u8a9e", 5), "\u65e5\u672c~");
    EXPECT_EQ(cut("\u65e5\u672c\u8a9e", 4), "\u65e5~");
    EXPECT_EQ(cut("abc", 0), "");
    EXPECT_EQ(fit("ab", 4), "ab  ");
    EXPECT_EQ(fit("ab", 4, true), "  ab");
    EXPECT_EQ(as_ascii("a\u00e9\u65e5"), "a???");
    EXPECT_EQ(without_last("a\u00e9"), "a");
    EXPECT_EQ(without_last(""), "");
}

TEST(TopText, LongTextWrapsAtSpaces) {
    EXPECT_THAT(wrapped("one two three", 8, 5), ElementsAre("one two", "three"));
    EXPECT_THAT(wrapped("one two three", 8, 1), ElementsAre("one two~"));
    EXPECT_THAT(wrapped("abcdefgh", 3, 9), ElementsAre("abc", "def", "gh"));
    EXPECT_THAT(wrapped("abc", 0, 3), SizeIs(1));
}

TEST(TopText, NamesAreOrderedByTheirNumbers) {
    EXPECT_TRUE(comes_before("n2", "n10"));
    EXPECT_FALSE(comes_before("n10", "n2"));
    EXPECT_TRUE(comes_before("a", "b"));
    EXPECT_TRUE(comes_before("n1", "n1a"));
    EXPECT_FALSE(comes_before("n1", "n1"));
}

TEST(TopStatus, AgesHaveTwoUnitsAtMost) {
    using std::chrono::seconds;
    EXPECT_EQ(format_age(seconds(45)), "45 s");
    EXPECT_EQ(format_age(seconds(750)), "12 min");
    EXPECT_EQ(format_age(seconds(12000)), "3 h 20 min");
    EXPECT_EQ(format_age(seconds(187200)), "2 d 4 h");
}

TEST(TopStatus, MalformedStatusIsEmptyOrNone) {
    EXPECT_FALSE(parse_status("no json"));
    EXPECT_FALSE(parse_status("{}"));
    EXPECT_THAT(parse_status(R"({"jobs":[7,null,{"nodes":3,"incidents":"a","step_samples":[[1],5],
                                 "totals":[],"last_failure":{},"step_rate":"x"}]})")
                    ->jobs,
                SizeIs(3));
}

// ---- Screens.

TEST_F(TopView, OnlyJobIsShownWithNodesFailureAndRecoveries) {
    view.take(status_of({nightly()}), now, kTime);
    EXPECT_THAT(
        draw(),
        ElementsAre(
            "regroup top  node0:29400  job nightly: training, round 3            21:30:05 UTC",
            "round 3 is running on 2 nodes",
            "step 1200, 12.3 steps/s, 16 ranks on 2 nodes, 1 restart, goodput 98.7 %, age 3 ~",
            "steps/s in 30 s  \u2585\u2588\u2581", "used: restarts 1 of 3",
            StartsWith("RANKSv  NODE   PLACE   STATE     STEP"),
            StartsWith("   0-7  n0     member  running   1200  250 ms"),
            StartsWith("  8-15  n12    member  running   1199  250 ms"), "", "", "", "", "", "", "",
            "node n7 is quarantined for 300 s: 3 failures",
            "last failure 2026-11-25T21:20:00.123Z: rank 3 on n7 was ended by SIGKILL", "  | two",
            "  | three", "  | four", "1 recovery took 1.5 s; 99.9 % of 1 h spent training",
            "  round 3, planned, after 50 ms: n12 has joined",
            "  round 2 after 40 ms: node n7 is lost", StartsWith("Esc all jobs  / filter")));
}

TEST_F(TopView, SeveralJobsAreListedAndOneOpens) {
    nlohmann::json other = nightly();
    other["job"] = "alpha";
    other["phase"] = "forming";
    other["text"] = "waiting for a node";
    view.take(status_of({nightly(), other}), now, kTime);
    EXPECT_THAT(draw(120), AllOf(Contains("2 jobs, 4 nodes, 32 ranks"),
                                 Contains(StartsWith("alpha    forming ")),
                                 Contains(StartsWith("nightly  training"))));
    EXPECT_THAT(selected(), StartsWith("alpha"));
    EXPECT_THAT(draw(), Contains("waiting for a node"));
    press(Key::down);
    press(Key::down);
    EXPECT_THAT(selected(), StartsWith("nightly"));
    press(Key::enter);
    EXPECT_THAT(draw()[0], HasSubstr("job nightly: training, round 3"));
    press(Key::escape);
    EXPECT_THAT(draw(), Contains("2 jobs, 4 nodes, 32 ranks"));
    EXPECT_THAT(selected(), StartsWith("nightly"));
}

TEST_F(TopView, CursorStaysOnItsJobWhenTheListChanges) {
    nlohmann::json a = nightly();
    a["job"] = "a";
    nlohmann::json b = nightly();
    b["job"] = "b";
    nlohmann::json c = nightly();
    c["job"] = "c";
    view.take(status_of({a, c}), now, kTime);
    draw();
    press(Key::end);
    EXPECT_THAT(selected(), StartsWith("c"));
    view.take(status_of({a, b, c}), now, kTime);
    EXPECT_THAT(selected(), StartsWith("c"));
    view.take(status_of({a, b}), now, kTime);
    EXPECT_THAT(selected(), StartsWith("b"));
    view.take(status_of({}), now, kTime);
    EXPECT_THAT(draw(), Contains("no jobs"));
    EXPECT_EQ(selected(), "");
}

TEST_F(TopView, TelemetryOfTheProgramIsShown) {
    nlohmann::json job = nightly();
    job["telemetry"] = {{"samples_per_s", 512.5},
                        {"values", {{"loss", 2.3125}, {"odd", "x"}}},
                        {"step_s", {{"data", 0.002}, {"compute", 0.07}, {"waiting", 0}}}};
    job["slow_ranks"] = {{{"rank", 3}, {"excess", 0.4}}};
    view.take(status_of({job}), now, kTime);
    EXPECT_THAT(draw(120),
                Contains("512 samples/s; loss 2.312; step: data 2 ms, compute 70 ms; slow "
                         "ranks: 3 (+40 %)"));
}

TEST_F(TopView, SnapshotsAreShown) {
    nlohmann::json job = nightly();
    job["snapshots"] = {{"step", 40}, {"age_s", 3.25}, {"kept_step", 30}};
    view.take(status_of({job}), now, kTime);
    EXPECT_THAT(draw(120), Contains("snapshot: step 40, 3.2 s ago; step 30 with copies"));
}

TEST_F(TopView, KeysSortAndReverse) {
    view.take(status_of({nightly()}), now, kTime);
    EXPECT_THAT(selected(), HasSubstr("n0"));
    type("r");
    press(Key::home);
    EXPECT_THAT(selected(), HasSubstr("n12"));
    type("ssss");  // By node, place, state, step.
    EXPECT_THAT(draw(), Contains(HasSubstr("STEPv")));
    press(Key::home);
    EXPECT_THAT(selected(), HasSubstr("n12"));
    type("ss");
    EXPECT_THAT(draw(), Contains(HasSubstr("RANKSv")));
}

TEST_F(TopView, FilterKeepsMatchingRowsUntilItIsCleared) {
    view.take(status_of({nightly()}), now, kTime);
    type("/N1q");  // Keys of the filter are no commands.
    press(Key::backspace);
    EXPECT_THAT(draw(), AllOf(Contains("filter: N1_"), Contains(HasSubstr("8-15  n12")),
                              Not(Contains(HasSubstr("0-7  n0")))));
    press(Key::enter);
    EXPECT_THAT(draw(), Contains("filter: N1"));
    press(Key::escape);
    EXPECT_THAT(draw(), Contains(HasSubstr("0-7  n0")));
    EXPECT_THAT(draw()[0], HasSubstr("job nightly"));
}

TEST_F(TopView, HelpIsShownUntilAKey) {
    view.take(status_of({nightly()}), now, kTime);
    type("?");
    EXPECT_THAT(draw(), Contains("regroup top follows a daemon. It changes nothing."));
    type("x");
    EXPECT_THAT(draw(), Contains("round 3 is running on 2 nodes"));
    EXPECT_FALSE(view.press({Key::text, "q"}));
}

TEST_F(TopView, SilentDaemonIsMarkedWithItsTimeUntilItAnswers) {
    view.take(status_of({nightly()}), now, kTime);
    now += std::chrono::seconds(9);
    EXPECT_THAT(draw(), Not(Contains(HasSubstr("no status"))));
    now += std::chrono::seconds(2);
    EXPECT_THAT(draw(), Contains("no status for 11 s, since 21:30:05 UTC"));
    view.lose("Connection refused");
    EXPECT_THAT(draw(), Contains("no status for 11 s, since 21:30:05 UTC: Connection refused"));
    view.take(status_of({nightly()}), now, kTime);
    EXPECT_THAT(draw(), Not(Contains(HasSubstr("no status"))));
}

TEST_F(TopView, JobThatIsGoneIsReported) {
    view.take(status_of({nightly()}), now, kTime);
    view.take(status_of({}), now, kTime);
    EXPECT_THAT(draw(), Contains("the daemon has no job nightly"));
    press(Key::escape);
    EXPECT_THAT(draw(), Contains("no jobs"));
}

TEST_F(TopView, ThousandNodesScrollAndTheCursorStaysVisible) {
    nlohmann::json job = nightly();
    job["nodes"] = nlohmann::json::array();
    for (std::uint64_t i = 0; i < 1000; ++i) {
        job["nodes"].push_back(node("n" + std::to_string(i), i * 8));
    }
    job["nodes_left_out"] = 24;
    view.take(status_of({job}), now, kTime);
    EXPECT_THAT(draw(), Contains("and 24 nodes more"));
    EXPECT_THAT(selected(), HasSubstr(" n0 "));
    press(Key::end);
    EXPECT_THAT(selected(), HasSubstr(" n999 "));
    press(Key::up);
    EXPECT_THAT(selected(), HasSubstr(" n998 "));
    EXPECT_THAT(draw(), Contains(HasSubstr(" n999 ")));
    press(Key::page_up);
    const std::string after_page = selected();
    EXPECT_THAT(after_page, Not(HasSubstr(" n998 ")));
    press(Key::home);
    EXPECT_THAT(selected(), HasSubstr(" n0 "));
    type("/n77");
    press(Key::enter);
    EXPECT_THAT(draw(), AllOf(Contains(HasSubstr(" n77 ")), Contains(HasSubstr(" n770 ")),
                              Not(Contains(HasSubstr(" n78 ")))));
}

TEST_F(TopView, EverySizeFits) {
    nlohmann::json job = nightly();
    job["text"] = std::string(300, 'x') + " \u65e5\u672c\u8a9e";
    nlohmann::json other = job;
    other["job"] = "\u65e5\u672c\u8a9e";
    for (const auto& jobs :
         {std::vector{job}, std::vector{job, other}, std::vector<nlohmann::json>{}}) {
        for (std::size_t rows = 0; rows <= 40; ++rows) {
            for (const std::size_t columns : {0U, 1U, 2U, 7U, 20U, 40U, 79U, 80U, 200U, 500U}) {
                view.take(status_of(jobs), now, kTime);
                const std::vector<std::string> texts = draw(columns, rows);
                ASSERT_LE(texts.size(), rows);
                for (const std::string& text : texts) {
                    ASSERT_LE(columns_of(text), columns) << rows << "x" << columns << ": " << text;
                }
            }
        }
    }
}

TEST_F(TopView, NarrowTerminalDropsTheLeastImportantColumns) {
    view.take(status_of({nightly()}), now, kTime);
    EXPECT_THAT(draw(200), Contains(AllOf(HasSubstr("NODE"), HasSubstr("STATE"), HasSubstr("HEARD"),
                                          HasSubstr("ADDRESS"))));
    EXPECT_THAT(draw(30), Contains(AllOf(HasSubstr("NODE"), HasSubstr("RANKS"),
                                         Not(HasSubstr("HEARD")), Not(HasSubstr("ADDRESS")))));
    EXPECT_THAT(draw(8), Contains(StartsWith("NODE")));
}

TEST_F(TopView, TerminalWithoutUtf8GetsAsciiOnly) {
    nlohmann::json job = nightly();
    job["text"] = "caf\u00e9";
    view.take(status_of({job}), now, kTime);
    std::string all;
    for (const Row& row : view.draw({24, 80}, now, /*utf8=*/false)) {
        all += text_of(row) + "\n";
    }
    EXPECT_THAT(all, HasSubstr("caf?"));
    EXPECT_TRUE(std::ranges::all_of(all, [](char c) {
        return static_cast<unsigned char>(c) < 128;
    })) << all;
}

TEST_F(TopView, ControlCharactersOfPeersAreNotDrawn) {
    nlohmann::json job = nightly();
    job["text"] = "evil\x1b[2J";
    job["nodes"][0]["name"] = "\x1b]0;x\x07";
    view.take(status_of({job}), now, kTime);
    EXPECT_THAT(draw(), Each(Not(HasSubstr("\x1b"))));
    EXPECT_THAT(draw(), Contains("evil\\x1b[2J"));
}

TEST(TopLines, LineForEachJobFitsItsHeading) {
    nlohmann::json other = nightly();
    other["job"] = "a job with a long name";
    const std::vector<std::string> lines = plain_lines(status_of({nightly(), other}), kTime);
    EXPECT_EQ(plain_heading(),
              "TIME          JOB               PHASE      ROUND  NODES  RANKS       STEP  STEPS/S  "
              "RESTARTS  WHAT");
    EXPECT_THAT(lines,
                ElementsAre("21:30:05 UTC  nightly           training       3      2     16       "
                            "1200     12.3         1  round 3 is running on 2 nodes",
                            HasSubstr("  a job with a long name  training   ")));
    EXPECT_THAT(plain_lines(status_of({}), kTime), ElementsAre("21:30:05 UTC  no jobs"));
}

}  // namespace
}  // namespace regroup::launcher::top
