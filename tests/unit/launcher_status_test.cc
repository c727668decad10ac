// SPDX-License-Identifier: Apache-2.0
//
// Tests the text that `regroup status` shows for each answer of a daemon, also of another version.
#include <gtest/gtest.h>

#include "launcher/top/status_table.h"
#include "tests/support/matchers.h"

namespace regroup::launcher::top {
namespace {

TEST(StatusTable, TableShowsAJobWithItsLosses) {
    const std::string text = status_table(R"({"jobs":[{
        "job":"nightly","phase":"running","text":"round 3 is running on 2 nodes","round":3,
        "world_size":16,"step":1200,"restarts":1,
        "nodes":[
          {"name":"n0","address":"10.0.0.1","place":"member","state":"running","workers":8,
           "first_rank":0,"step":1200,"silent_s":0.25},
          {"name":"n12","address":"10.0.0.12","place":"member","state":"running","workers":1,
           "first_rank":8,"step":1199,"silent_s":0.5,"detail":"draining"},
          {"name":"n3","address":"10.0.0.3","place":"standby","state":"stopped","workers":8,
           "step":0,"silent_s":1}],
        "quarantined":[{"name":"n7","text":"node n7 is quarantined for 300 s: 3 failures"}],
        "budgets_text":"restarts 1 of 3, lost nodes 2",
        "recoveries_text":"1 recovery took 1.5 s; 99.9 % of 1 h spent training",
        "incidents":[{"text":"round 2, cut short after 40 ms: node n7 is lost"},
                     {"text":"round 3 after 250 ms: node n7 is lost; n3 takes its place"}]}]})");
    EXPECT_EQ(text,
              "job nightly: running, round 3, 16 ranks, step 1200, 1 restart\n"
              "  round 3 is running on 2 nodes\n"
              "  NODE  ADDRESS    PLACE    RANKS  STATE    STEP  HEARD\n"
              "  n0    10.0.0.1   member   0-7    running  1200  250 ms ago\n"
              "  n12   10.0.0.12  member   8      running  1199  500 ms ago  draining\n"
              "  n3    10.0.0.3   standby  -      stopped  -     1.0 s ago\n"
              "  node n7 is quarantined for 300 s: 3 failures\n"
              "  used: restarts 1 of 3, lost nodes 2\n"
              "  1 recovery took 1.5 s; 99.9 % of 1 h spent training\n"
              "    round 2, cut short after 40 ms: node n7 is lost\n"
              "    round 3 after 250 ms: node n7 is lost; n3 takes its place\n");
}

TEST(StatusTable, TableShowsTroubleOfTheJournal) {
    EXPECT_EQ(status_table(R"({"jobs":[{"job":"a","phase":"running","round":2,"text":"round 2 runs",
                                        "journal":"nothing is kept since it failed"}]})"),
              "job a: running, round 2\n"
              "  round 2 runs\n"
              "  journal: nothing is kept since it failed\n");
}

TEST(StatusTable, TableShowsWhichSnapshotsThereAre) {
    EXPECT_EQ(status_table(R"({"jobs":[{"job":"a","phase":"running","round":2,"text":"round 2 runs",
                                        "snapshots":{"step":40,"age_s":3.25,"kept_step":40,
                                                     "written_step":0,"memory_bytes":1}}]})"),
              "job a: running, round 2\n"
              "  round 2 runs\n"
              "  snapshot: step 40, 3.2 s ago; step 40 with copies; step 0 in the folder\n");
}

TEST(StatusTable, MissingOrInvalidFieldsAreEmpty) {
    EXPECT_EQ(status_table(R"({"jobs":[]})"), "no jobs\n");
    EXPECT_EQ(status_table("no json"), "no json\n");
    EXPECT_EQ(status_table("{}"), "{}\n");
    EXPECT_THAT(status_table(R"({"jobs":[{"job":1,"nodes":{"a":[]},"incidents":3}]})"),
                HasSubstr("round 0"));
    EXPECT_THAT(status_table(R"({"jobs":[7,null]})"), HasSubstr("round 0"));
    EXPECT_THAT(status_table(R"({"jobs":[{"job":"a","nodes":[5,{"silent_s":-1e300}]}]})"),
                HasSubstr("0 ms ago"));
}

TEST(StatusTable, TextOfAPeerMakesNoLineOfItsOwn) {
    const std::string text = status_table(
        "{\"jobs\":[{\"job\":\"a\\u001b[2J\\nb\\u202e\\u009b\",\"phase\":\"running\"}]}");
    EXPECT_THAT(text, HasSubstr("job a\\x1b[2J\\x0ab\\u202e\\u009b: running"));
    EXPECT_EQ(status_table("no json\x1b[2J\n"), "no json\\x1b[2J\\x0a\n");
}

TEST(StatusJson, HasTheSameValuesForATerminal) {
    EXPECT_EQ(status_json("{\"b\":1.5,\"a\":[\"\u202ex\u009b\u00fc\",\"\\n\"]}"),
              "{\"b\":1.5,\"a\":[\"\\u202ex\\u009b\u00fc\",\"\\n\"]}");
    EXPECT_EQ(status_json("no json\x1b[2J\n"), "no json\\x1b[2J\\x0a");
}

TEST(StatusTable, TableSaysHowMuchIsOmitted) {
    const std::string text = status_table(
        R"({"jobs":[{"job":"a","phase":"running","nodes_left_out":12}],"jobs_left_out":1})");
    EXPECT_THAT(text, saying("  and 12 nodes more\n", "and 1 job more (--job=ID shows one)\n"));
}

}  // namespace
}  // namespace regroup::launcher::top
