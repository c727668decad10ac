// SPDX-License-Identifier: Apache-2.0
//
// Tests the lines that `regroup events` prints, and those of agents in the event log.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "launcher/event_line.h"
#include "launcher/event_text.h"

namespace regroup::launcher {
namespace {

using agent::WorkerEvent;
using nlohmann::json;

TEST(EventText, FailureShowsItsRankAndItsSentenceInColumns) {
    EXPECT_EQ(event_heading(),
              "TIME                     EVENT       ROUND STEP     NODE         RANKS");
    EXPECT_EQ(event_text(R"({"time":"2026-11-25T21:20:00.123Z","job":"nightly","number":7,
        "event":"failed","round":3,"step":120,"node":"n12","first_rank":8,"workers":8,"rank":13,
        "text":"rank 13 on n12 was ended by SIGKILL"})"),
              "2026-11-25T21:20:00.123Z failed      3     120      n12          13      "
              "rank 13 on n12 was ended by SIGKILL");
}

TEST(EventText, RoundsAndRecoveriesAreSummedUp) {
    EXPECT_EQ(event_text(R"({"time":"t","event":"assigned","round":4,"step":9,
        "text":"node c joined","summary":"2 nodes, 16 ranks: node c joined"})"),
              "t                        assigned    4     9        -            -       "
              "2 nodes, 16 ranks: node c joined");
    EXPECT_EQ(event_text(R"({"time":"t","event":"recovered","round":4,"step":9,"text":"rank 1 died",
        "summary":"round 4 after 1.5 s: rank 1 died; 3 steps to do again"})"),
              "t                        recovered   4     9        -            -       "
              "round 4 after 1.5 s: rank 1 died; 3 steps to do again");
    EXPECT_EQ(
        event_text(R"({"time":"t","event":"closed","text":"done","summary":"succeeded: done"})"),
        "t                        closed      0     0        -            -       "
        "succeeded: done");
}

TEST(EventText, LongNamesMoveTheColumnsAndHostileOnesAreShown) {
    const std::string line =
        event_text(R"({"time":"t","event":"joined","node":"a-very-long-name\u001b[2J"})");
    EXPECT_THAT(line, ::testing::HasSubstr("a-very-long-name\\x1b[2J -"));
    EXPECT_EQ(event_text("no\tJSON\x1b"), "no\tJSON\\x1b");
}

TEST(EventText, JsonKeepsItsFieldsInOrderAndHidesNothing) {
    EXPECT_EQ(event_json("{\"b\":1,\"a\":\"\xE2\x80\xAE\"}"), "{\"b\":1,\"a\":\"\\u202e\"}");
    EXPECT_EQ(event_json("{\x1b"), "{\\x1b");
}

TEST(AgentEventLine, EndOfAWorkerNamesItsSignalAndItsPlace) {
    agent::AgentConfig config;
    config.job = "nightly";
    config.offer.name = "n1";
    WorkerEvent event;
    event.state = WorkerEvent::State::failed;
    event.assignment.round = rendezvous::RoundId{3};
    event.assignment.first_rank = 8;
    event.local_rank = 5;
    event.pid = 4711;
    event.exit_code = -9;
    const json line = json::parse(agent_event_line(event, config, "n1.example", 0));
    EXPECT_EQ(line.at("time"), "1970-01-01T00:00:00.000Z");
    EXPECT_EQ(line.at("source"), "agent");
    EXPECT_EQ(line.at("event"), "worker_failed");
    EXPECT_EQ(line.at("round"), 3);
    EXPECT_EQ(line.at("rank"), 13);
    EXPECT_EQ(line.at("local_rank"), 5);
    EXPECT_EQ(line.at("pid"), 4711);
    EXPECT_EQ(line.at("exit_code"), 137);
    EXPECT_EQ(line.at("signal"), "SIGKILL");

    event.state = WorkerEvent::State::stacks_saved;
    event.folder = "/tmp/x/hang-round3";
    const json saved = json::parse(agent_event_line(event, config, "n1.example", 0));
    EXPECT_EQ(saved.at("event"), "stacks_saved");
    EXPECT_EQ(saved.at("folder"), "/tmp/x/hang-round3");
    EXPECT_FALSE(saved.contains("exit_code"));
}

}  // namespace
}  // namespace regroup::launcher
