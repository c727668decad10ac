// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "protocol_samples.h"
#include "rendezvous/protocol/codec.h"
#include "rendezvous/protocol/framing.h"
#include "tests/unit/protocol_round_trip.h"

namespace regroup::protocol {
namespace {

using namespace rendezvous;  // NOLINT: every message.
using nlohmann::json;
using regroup::testing::sample_assignment;
using regroup::testing::sample_incident;
using regroup::testing::sample_join;
using regroup::testing::sample_operate;
using regroup::testing::sample_report;
using regroup::testing::sample_resumed;
using regroup::testing::sample_telemetry;
using regroup::testing::sample_verdict;
using regroup::testing::sample_waiting;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ProtocolRefusals, UnknownTypesAreRefusedByName) {
    EXPECT_THAT(error_of(decode_from_agent(R"({"type":"hello"})")),
                HasSubstr("unknown type 'hello'"));
    EXPECT_THAT(error_of(decode_from_daemon(R"({"type":"hello"})")),
                HasSubstr("unknown type 'hello'"));
    EXPECT_THAT(error_of(decode_from_agent("{}")), HasSubstr("field 'type' is missing"));
    EXPECT_THAT(error_of(decode_from_daemon(R"({"type":7})")),
                HasSubstr("field 'type' must be a string"));
}

TEST(ProtocolRefusals, NeitherSideTakesTheOthersMessages) {
    for (const FromAgent& message : regroup::testing::samples_from_agent()) {
        EXPECT_THAT(error_of(decode_from_daemon(encode(message))), HasSubstr("unknown type"));
    }
    for (const FromDaemon& message : regroup::testing::samples_from_daemon()) {
        EXPECT_THAT(error_of(decode_from_agent(encode(message))), HasSubstr("unknown type"));
    }
}

TEST(ProtocolRefusals, TextFromAnUnknownPeerIsQuotedShortAndOnOneLine) {
    const std::string error = error_of(
        decode_from_agent(R"({"type":"\u001b[2Jhi\nthere)" + std::string(500, 'x') + "\"}"));
    EXPECT_THAT(error, HasSubstr("unknown type '?[2Jhi?there"));
    EXPECT_LT(error.size(), 120U);
}

TEST(ProtocolRefusals, AnotherVersionIsRefusedNamingBoth) {
    json join = json_of(FromAgent(sample_join()));
    join["protocol"] = 7;
    const Result<FromAgent> decoded = decode_from_agent(join.dump());
    ASSERT_FALSE(decoded);
    EXPECT_EQ(decoded.error().code, Errc::invalid_argument);
    EXPECT_THAT(decoded.error().detail, AllOf(HasSubstr("speaks version 1 of the control protocol"),
                                              HasSubstr("the agent speaks version 7")));
}

TEST(ProtocolRefusals, AnotherVersionIsRefusedAsSuchWithAnyOtherFields) {
    EXPECT_THAT(error_of(decode_from_agent(R"({"type":"join","protocol":2,"new_world":[]})")),
                HasSubstr("the agent speaks version 2"));
}

TEST(ProtocolRefusals, PayloadThatIsNoJsonObjectIsRefused) {
    for (const char* payload :
         {"", " ", "{", "nul", "\"join\"", "[]", "7", "{} {}", "{\"type\":\xFF}",
          "{\"type\":\"join\",}", "{'type':'join'}", "\xEF\xBB\xBF"}) {
        EXPECT_FALSE(decode_from_agent(payload)) << payload;
        EXPECT_FALSE(decode_from_daemon(payload)) << payload;
    }
    EXPECT_THAT(error_of(decode_from_agent("{")), HasSubstr("not JSON"));
    EXPECT_THAT(error_of(decode_from_agent("[]")), HasSubstr("not a JSON object"));
}

TEST(ProtocolRefusals, NestingIsBounded) {
    const auto nested = [](std::size_t depth) {
        return R"({"type":"leave","reason":"r","x":)" + std::string(depth, '[') +
               std::string(depth, ']') + "}";
    };
    EXPECT_TRUE(decode_from_agent(nested(kNestingMax - 1)));
    EXPECT_THAT(error_of(decode_from_agent(nested(kNestingMax))),
                HasSubstr("nested more than 16 deep"));
    EXPECT_FALSE(decode_from_agent(nested(100000)));
    EXPECT_FALSE(decode_from_daemon(std::string(kFrameBytesMax, '{')));
}

TEST(ProtocolRefusals, BracketsInTextAreNoNesting) {
    const Leave leave{R"(\"[[[[[[[[[[[[[[[[[[[[[[[[[[[{{{{{{{{{{ \\)"};
    const Result<FromAgent> decoded = decode_from_agent(encode(FromAgent(leave)));
    ASSERT_TRUE(decoded) << error_of(decoded);
    EXPECT_EQ(std::get<Leave>(*decoded).reason, leave.reason);
}

struct Malformation {
    const char* field;
    json value;
};

template <class Decode>
void expect_each_is_named(const json& good, const std::vector<Malformation>& all, Decode decode) {
    ASSERT_TRUE(decode(good.dump())) << error_of(decode(good.dump()));
    for (const Malformation& bad : all) {
        json object = good;
        const std::string pointer = "/" + std::string(bad.field);
        object[json::json_pointer(pointer)] = bad.value;
        std::string name = bad.field;
        std::replace(name.begin(), name.end(), '/', '.');
        EXPECT_THAT(error_of(decode(object.dump())), HasSubstr("field '" + name + "'"))
            << bad.value.dump();
    }
}

template <class Decode>
void expect_required(const json& good, const std::vector<const char*>& keys, Decode decode) {
    for (const char* key : keys) {
        json object = good;
        object.erase(key);
        EXPECT_THAT(error_of(decode(object.dump())),
                    HasSubstr("field '" + std::string(key) + "' is missing"));
    }
}

std::vector<Malformation> bad_report() {
    return {
        {"round", -1},
        {"round", 1.5},
        {"round", (std::uint64_t{1} << 53U) + 1},
        {"state", "asleep"},
        {"state", 1},
        {"state", nullptr},
        {"store_port", 65536},
        {"store_port", "80"},
        {"failure", "bad luck"},
        {"failure", json::array()},
        {"failure/rank", -1},
        {"failure/local_rank", 4294967296},
        {"failure/node", 7},
        {"failure/host", json::object()},
        {"failure/pid", -1},
        {"failure/pid", 1e300},
        {"failure/exit_code", 256},
        {"failure/exit_code", -2},
        {"failure/exit_code", 18446744073709551615U},
        {"failure/signal", 128},
        {"failure/core_dumped", 1},
        {"failure/start_error", true},
        {"failure/time", 12},
        {"failure/last_output", json::array({"line"})},
        {"failure/log", 0},
        {"failure/kind", "bored"},
        {"failure/peer_error", "bored"},
        {"finished", "rank 3"},
        {"finished", json::array({3})},
        {"elastic", 1},
        {"step", -1},
        {"held_step", -1},
        {"ended_step", -1},
        {"store_spent", 1},
        {"draining", 7},
        {"hang", "yes"},
        {"hang/rank", -1},
        {"hang/text", 7},
        {"positions", "here"},
        {"positions", json::array({7})},
        {"alarm", -1},
        {"broken_links", 7},
        {"broken_links", json::array({"x"})},
    };
}

TEST(ProtocolRefusals, EachMalformedFieldOfAJoinIsNamed) {
    std::vector<Malformation> bad = bad_report();
    for (const char* key : {"job", "node", "name", "role", "rank_key", "address"}) {
        bad.push_back({key, 7});
        bad.push_back({key, ""});
        bad.push_back({key, std::string(kNameBytesMax + 1, 'x')});
        bad.push_back({key, "two\nlines"});
    }
    for (const char* key : {"nodes_min",
                            "nodes_max",
                            "restarts_max",
                            "workers",
                            "slot",
                            "last_call_ms",
                            "heartbeat_timeout_ms",
                            "shutdown_timeout_ms",
                            "grow_after_ms",
                            "protocol",
                            "regroup_window_ms",
                            "standbys_max",
                            "prepare_timeout_ms",
                            "finish_timeout_ms",
                            "budgets/hangs",
                            "budgets/losses",
                            "budgets/refill_steps",
                            "budgets/no_progress_max",
                            "budgets/delay_ms",
                            "budgets/node_failures_max",
                            "budgets/node_failures_window_ms"}) {
        bad.push_back({key, "3"});
        bad.push_back({key, -3});
        bad.push_back({key, 2.5});
        bad.push_back({key, std::uint64_t{1} << 54U});
    }
    bad.push_back({"workers", (1U << 20U) + 1});
    bad.push_back({"program", 7});
    bad.push_back({"other_addresses", "10.0.0.1"});
    bad.push_back({"other_addresses", json::array({"10.0.0.1", 7})});
    bad.push_back({"other_addresses", json::array({"10.0.0.1", ""})});
    bad.push_back({"on_exit", "2=fail"});
    bad.push_back({"on_exit", {{"0", "fail"}}});
    bad.push_back({"on_exit", {{"256", "fail"}}});
    bad.push_back({"on_exit", {{"02", "fail"}}});
    bad.push_back({"on_exit", {{"x", "fail"}}});
    bad.push_back({"on_exit/2", "explode"});
    bad.push_back({"on_exit/2", 7});
    bad.push_back({"budgets", 3});
    bad.push_back({"rank_order", 3});
    bad.push_back({"rank_order", "size"});
    bad.push_back({"nodes_min", 0});
    bad.push_back({"nodes_min", 5});
    bad.push_back({"heartbeat_timeout_ms", 99});
    bad.push_back({"heartbeat_timeout_ms", 3600001});
    for (const char* key :
         {"last_call_ms", "shutdown_timeout_ms", "grow_after_ms", "regroup_window_ms",
          "prepare_timeout_ms", "finish_timeout_ms", "budgets/delay_ms",
          "budgets/node_failures_window_ms", "at_work_ms", "ended_ago_ms", "join_timeout_ms"}) {
        bad.push_back({key, 2592000001});
    }
    expect_each_is_named(json_of(FromAgent(sample_join())), bad, decode_from_agent);
}

TEST(ProtocolRefusals, EachMissingFieldOfAJoinIsNamed) {
    expect_required(json_of(FromAgent(sample_join())),
                    {"protocol", "job", "node", "nodes_min", "nodes_max", "name", "round", "state"},
                    decode_from_agent);
}

TEST(ProtocolRefusals, EachMalformedFieldOfAReportIsNamed) {
    const json good = json_of(FromAgent(Report{sample_report()}));
    expect_each_is_named(good, bad_report(), decode_from_agent);
    expect_required(good, {"round", "state"}, decode_from_agent);
}

TEST(ProtocolRefusals, FailureWithoutAnEndIsRefused) {
    // Otherwise the job would end with exit code 0, or without one.
    for (const int code : {-1, 0}) {
        Report report{sample_report()};
        report.report.failure = WorkerFailure();
        report.report.failure->exit_code = code;
        EXPECT_THAT(error_of(decode_from_agent(encode(FromAgent(report)))),
                    HasSubstr("field 'failure.exit_code' reports no failure"));
    }
}

TEST(ProtocolRefusals, EachMalformedFieldOfALeaveIsNamed) {
    expect_each_is_named(json_of(FromAgent(Leave{"r"})), {{"reason", 7}, {"killed", "yes"}},
                         decode_from_agent);
}

TEST(ProtocolRefusals, EachMalformedFieldOfAPositionIsNamed) {
    json report = json_of(FromAgent(Report{sample_report()}));
    for (const Malformation& bad : std::vector<Malformation>{
             {"rank", -1}, {"step", "x"}, {"operations", 0.5}, {"waiting", 1}, {"doing", 7}}) {
        json object = report;
        object["positions"][1][bad.field] = bad.value;
        EXPECT_THAT(error_of(decode_from_agent(object.dump())),
                    HasSubstr("field 'positions[1]." + std::string(bad.field) + "'"));
    }
}

TEST(ProtocolRefusals, EachMalformedFieldOfATelemetryIsNamed) {
    const json good = json_of(FromAgent(Report{sample_report(), sample_telemetry()}));
    std::vector<Malformation> bad{{"telemetry", 7},
                                  {"telemetry/pid", -1},
                                  {"telemetry/values", json::array()},
                                  {"telemetry/values/loss", "low"},
                                  {"telemetry/values/loss", nullptr},
                                  {"telemetry/slow_ranks", 3}};
    for (const char* key :
         {"steps", "samples", "data_us", "compute_us", "communication_us", "waiting_us"}) {
        const std::string field = std::string("telemetry/") + key;
        for (const json& value : {json(-1), json(0.5), json("1"), json(std::uint64_t{1} << 54U)}) {
            json object = good;
            object[json::json_pointer("/" + field)] = value;
            EXPECT_THAT(error_of(decode_from_agent(object.dump())),
                        HasSubstr(std::string("field 'telemetry.") + key + "'"));
        }
    }
    expect_each_is_named(good, bad, decode_from_agent);
    json object = good;
    object["telemetry"].erase("steps");
    EXPECT_THAT(error_of(decode_from_agent(object.dump())),
                HasSubstr("field 'telemetry.steps' is missing"));
}

TEST(ProtocolRefusals, NamesAndNumbersOfValuesAreBounded) {
    const json good = json_of(FromAgent(Report{sample_report(), sample_telemetry()}));
    for (const std::string& name : {std::string(), std::string("Loss"), std::string("2nd"),
                                    std::string("a\nb"), std::string(33, 'x')}) {
        json object = good;
        object["telemetry"]["values"] = {{name, 1}};
        EXPECT_THAT(error_of(decode_from_agent(object.dump())),
                    AllOf(HasSubstr("field 'telemetry.values' has the key"),
                          HasSubstr("no name of a value")));
    }
    json many = good;
    for (int i = 0; i < 7; ++i) {
        many["telemetry"]["values"]["value_" + std::to_string(i)] = i;
    }
    EXPECT_THAT(error_of(decode_from_agent(many.dump())),
                HasSubstr("field 'telemetry.values' has more than 8 values"));
    // JSON has no word for these: a number that is too large for a double is no JSON.
    EXPECT_FALSE(decode_from_agent(
        R"({"type":"report","round":1,"state":"running","telemetry":{"steps":1,"values":{"a":1e999}}})"));
}

TEST(ProtocolRefusals, EachMalformedFieldOfASlowRankIsNamed) {
    const json good = json_of(FromAgent(Report{sample_report(), sample_telemetry()}));
    for (const Malformation& bad :
         std::vector<Malformation>{{"rank", -1}, {"excess", -0.5}, {"excess", "x"}}) {
        json object = good;
        object["telemetry"]["slow_ranks"][0][bad.field] = bad.value;
        EXPECT_THAT(error_of(decode_from_agent(object.dump())),
                    HasSubstr("field 'telemetry.slow_ranks[0]." + std::string(bad.field) + "'"));
    }
}

TEST(ProtocolRefusals, EachMalformedFieldOfABrokenLinkIsNamed) {
    json report = json_of(FromAgent(Report{sample_report()}));
    for (const Malformation& bad :
         std::vector<Malformation>{{"rank", -1}, {"peer", "x"}, {"text", 7}}) {
        json object = report;
        object["broken_links"][0][bad.field] = bad.value;
        EXPECT_THAT(error_of(decode_from_agent(object.dump())),
                    HasSubstr("field 'broken_links[0]." + std::string(bad.field) + "'"));
    }
}

TEST(ProtocolRefusals, EachMalformedFieldOfTheRarerMessagesOfAgentsIsNamed) {
    const json resumed = json_of(FromAgent(sample_resumed()));
    expect_each_is_named(resumed,
                         {{"round", "5"},
                          {"step", -1},
                          {"communicator_us", -1},
                          {"state_us", 0.5},
                          {"first_step_us", std::uint64_t{1} << 51U},
                          {"ago_us", -1}},
                         decode_from_agent);
    expect_required(resumed, {"round", "step"}, decode_from_agent);
    const json operate = json_of(FromAgent(sample_operate()));
    expect_each_is_named(operate,
                         {{"action", "dance"},
                          {"action", 1},
                          {"job", ""},
                          {"node", "two\nlines"},
                          {"author", 1},
                          {"reason", 1}},
                         decode_from_agent);
    expect_required(operate, {"protocol", "action", "node"}, decode_from_agent);
}

TEST(ProtocolRefusals, EachMalformedFieldOfAnAssignIsNamed) {
    std::vector<Malformation> bad;
    for (const char* key : {"round", "group_rank", "group_world_size", "first_rank", "world_size",
                            "role_first_rank", "role_world_size", "master_port", "restart_count"}) {
        bad.push_back({key, "3"});
        bad.push_back({key, -1});
        bad.push_back({key, std::uint64_t{1} << 60U});
    }
    bad.push_back({"master_port", 65536});
    bad.push_back({"master_addr", 7});
    bad.push_back({"master_addr", ""});
    bad.push_back({"reason", 7});
    const json good = json_of(FromDaemon(Assign{sample_assignment()}));
    expect_each_is_named(good, bad, decode_from_daemon);
    expect_required(good,
                    {"round", "group_rank", "group_world_size", "first_rank", "world_size",
                     "master_addr", "master_port"},
                    decode_from_daemon);
}

TEST(ProtocolRefusals, EachMalformedFieldOfTheOtherAnswersIsNamed) {
    const json stop = json_of(FromDaemon(Stop{RoundId{4}, "r"}));
    expect_each_is_named(stop, {{"round", "4"}, {"reason", 4}}, decode_from_daemon);
    expect_required(stop, {"round"}, decode_from_daemon);
    expect_each_is_named(json_of(FromDaemon(Fenced{"r"})), {{"reason", 4}}, decode_from_daemon);
    const json alive = json_of(FromDaemon(Alive{RoundId{4}}));
    expect_each_is_named(alive, {{"round", nullptr}}, decode_from_daemon);
    expect_required(alive, {"round"}, decode_from_daemon);
    expect_each_is_named(json_of(FromDaemon(sample_waiting())),
                         {{"joined", "a"},
                          {"joined", json::array({7})},
                          {"nodes_min", -1},
                          {"nodes_max", "4"},
                          {"standby", 0},
                          {"prestart", 0},
                          {"detail", json::array({"a"})}},
                         decode_from_daemon);
    const json refused = json_of(FromDaemon(Refused{Errc::closed, "r"}));
    expect_each_is_named(refused, {{"code", "bored"}, {"code", 3}, {"reason", 3}},
                         decode_from_daemon);
    expect_required(refused, {"code"}, decode_from_daemon);
    const json closed = json_of(FromDaemon(Closed{sample_verdict()}));
    expect_each_is_named(closed,
                         {{"outcome", "won"},
                          {"reason", 1},
                          {"author", 1},
                          {"exit_code", 256},
                          {"exit_code", -1},
                          {"restarts", -1},
                          {"failure/rank", -1}},
                         decode_from_daemon);
    expect_each_is_named(closed,
                         {{"lasted_us", -1},
                          {"lost_us", "x"},
                          {"lost_at_end_us", -1},
                          {"recoveries", 0.5},
                          {"recoveries_planned", "2"},
                          {"recoveries_cut_short", -1},
                          {"lost_steps", -1},
                          {"lost_at_least", 1}},
                         decode_from_daemon);
    expect_required(closed, {"outcome"}, decode_from_daemon);
}

TEST(ProtocolRefusals, EachMalformedFieldOfTheAnswersAboutRecoveryIsNamed) {
    const json prepare = json_of(FromDaemon(Prepare{RoundId{4}, true, "r"}));
    expect_each_is_named(prepare, {{"round", "4"}, {"leave", 1}, {"reason", 4}},
                         decode_from_daemon);
    expect_required(prepare, {"round"}, decode_from_daemon);
    expect_required(json_of(FromDaemon(SaveStacks{RoundId{4}, 1, "r"})), {"round"},
                    decode_from_daemon);
    const json end = json_of(FromDaemon(EndWorker{RoundId{4}, 3, "r"}));
    expect_each_is_named(end, {{"rank", -1}}, decode_from_daemon);
    expect_required(end, {"round", "rank"}, decode_from_daemon);
    const json recovered = json_of(FromDaemon(Recovered{sample_incident()}));
    std::vector<Malformation> bad{{"planned", 1},  {"cut_short", 1}, {"cause", 1},
                                  {"decision", 1}, {"step", -1},     {"lost_steps", -1}};
    for (const char* key : {"detect_us", "decide_us", "stop_us", "join_us", "communicator_us",
                            "state_us", "first_step_us"}) {
        bad.push_back({key, -1});
        bad.push_back({key, "1"});
    }
    expect_each_is_named(recovered, bad, decode_from_daemon);
    expect_required(recovered, {"round", "next_round"}, decode_from_daemon);
    const json operated = json_of(FromDaemon(Operated{true, "t"}));
    expect_each_is_named(operated, {{"done", 1}, {"text", 1}}, decode_from_daemon);
    expect_required(operated, {"done"}, decode_from_daemon);
    const json page = json_of(FromDaemon(EventPage{"nightly", 7, "{}\n", true}));
    expect_each_is_named(page, {{"job", ""}, {"began_ms", "7"}, {"lines", 1}, {"last", 1}},
                         decode_from_daemon);
    expect_required(page, {"job"}, decode_from_daemon);
    expect_each_is_named(json_of(FromDaemon(Elsewhere{"b:1"})), {{"endpoint", 1}, {"endpoint", ""}},
                         decode_from_daemon);
}

}  // namespace
}  // namespace regroup::protocol
