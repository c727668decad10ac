// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "protocol_samples.h"
#include "rendezvous/protocol/codec.h"
#include "rendezvous/protocol/framing.h"
#include "rendezvous/protocol/message_line.h"
#include "tests/unit/protocol_round_trip.h"

namespace regroup::protocol {
namespace {

using namespace rendezvous;  // NOLINT: every message.
using nlohmann::json;
using regroup::testing::sample_join;
using regroup::testing::sample_operate;
using regroup::testing::sample_report;
using regroup::testing::sample_telemetry;
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

TEST(ProtocolRefusals, OlderCommandIsToldThatTheDaemonShowsTheStatusByHttp) {
    for (const std::string action : {"status", "events"}) {
        json operate = json_of(FromAgent(sample_operate()));
        operate["action"] = action;
        EXPECT_THAT(error_of(decode_from_agent(operate.dump())),
                    HasSubstr("shows " + action + " by HTTP only; use a regroup of its version"));
    }
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

// ---- Fields.

/// The sample of each message, by its name.
std::map<std::string, json> samples() {
    std::map<std::string, json> samples;
    for (const FromAgent& message : regroup::testing::samples_from_agent()) {
        samples[std::string(kind_of(message))] = json_of(message);
    }
    for (const FromDaemon& message : regroup::testing::samples_from_daemon()) {
        samples[std::string(kind_of(message))] = json_of(message);
    }
    return samples;
}

std::string refusal_of(const std::string& kind, const json& message) {
    return std::ranges::find(kAgentKinds, kind) != std::end(kAgentKinds)
               ? error_of(decode_from_agent(message.dump()))
               : error_of(decode_from_daemon(message.dump()));
}

/// Values that no field has whose sample is `good`.
std::vector<json> values_of_other_types(const json& good) {
    switch (good.type()) {
        case json::value_t::number_integer:
        case json::value_t::number_unsigned:
            return {"3", -3, 2.5, std::uint64_t{1} << 54U, nullptr};
        case json::value_t::array:
            return {"a", 3, json::array({7}), json::array({nullptr})};
        case json::value_t::object:
            return {"a", 3, json::array()};
        case json::value_t::boolean:
            return {"yes", 1, nullptr};
        case json::value_t::string:
            return {7, true, json::object(), nullptr};
        default:
            return {"3", json::array(), nullptr};
    }
}

/// Gives `value` values of other types, and each field in it. `name` is that of the field.
void spoil(json& value, const std::string& name,
           const std::function<void(const std::string& name)>& check) {
    const json good = value;
    for (const json& bad : values_of_other_types(good)) {
        value = bad;
        check(name);
    }
    value = good;
    if (good.is_array() && good.front().is_object()) {
        for (std::size_t i = 0; i < good.size(); ++i) {
            for (auto& [key, inner] : value[i].items()) {
                spoil(inner, name + "[" + std::to_string(i) + "]." + key, check);
            }
        }
    } else if (good.is_object()) {
        for (auto& [key, inner] : value.items()) {
            spoil(inner, name + "." + key, check);
        }
    }
}

TEST(ProtocolRefusals, EachFieldOfAnotherTypeIsNamed) {
    for (auto& [kind, message] : samples()) {
        for (auto& [key, value] : message.items()) {
            spoil(value, key, [&](const std::string& name) {
                EXPECT_THAT(refusal_of(kind, message), HasSubstr("field '" + name + "'"))
                    << message.dump();
            });
        }
    }
}

TEST(ProtocolRefusals, EachMissingFieldIsNamedIfItIsRequired) {
    const std::map<std::string, std::set<std::string>> required{
        {"join", {"protocol", "job", "node", "nodes_min", "nodes_max", "name", "round", "state"}},
        {"report", {"round", "state"}},
        {"resumed", {"round", "step"}},
        {"log_part", {"ticket"}},
        {"operate", {"protocol", "action", "node"}},
        {"assign",
         {"round", "group_rank", "group_world_size", "first_rank", "world_size", "master_addr",
          "master_port"}},
        {"stop", {"round"}},
        {"prepare", {"round"}},
        {"save_stacks", {"round"}},
        {"end_worker", {"round", "rank"}},
        {"read_log", {"ticket", "rank", "stream"}},
        {"dismissed", {"round"}},
        {"alive", {"round"}},
        {"refused", {"code"}},
        {"recovered", {"round", "next_round"}},
        {"slow_rank", {"round", "rank", "node"}},
        {"closed", {"outcome"}},
        {"operated", {"done"}}};
    for (const auto& [kind, message] : samples()) {
        const auto found = required.find(kind);
        for (const auto& [key, value] : message.items()) {
            json object = message;
            object.erase(key);
            const bool may_lack =
                key != "type" && (found == required.end() || !found->second.contains(key));
            EXPECT_THAT(refusal_of(kind, object),
                        HasSubstr(may_lack ? "no error" : "field '" + key + "' is missing"))
                << kind;
        }
    }
}

TEST(ProtocolRefusals, TypeOfANewerDaemonIsToldFromGarbage) {
    EXPECT_TRUE(protocol::is_of_unknown_type(R"({"type":"news","text":"hello"})"));
    for (const char* const payload :
         {R"({"type":"alive"})", R"({"type":7})", R"({"text":"hello"})", "news", ""}) {
        EXPECT_FALSE(protocol::is_of_unknown_type(payload)) << payload;
    }
}

TEST(ProtocolRefusals, EachMissingFieldOfAPartIsNamedIfItIsRequired) {
    const json report = samples()["report"];
    for (const auto& [part, keys] :
         std::map<std::string, std::vector<std::string>>{{"/telemetry", {"steps"}},
                                                         {"/broken_links/0", {"rank", "peer"}},
                                                         {"/finished/0", {"first", "count"}}}) {
        for (const std::string& key : keys) {
            json object = report;
            object[json::json_pointer(part)].erase(key);
            EXPECT_THAT(refusal_of("report", object), HasSubstr(key + "' is missing"));
        }
    }
}

struct Malformation {
    std::string kind;
    std::string pointer;  ///< "failure/rank".
    json value;
};

void expect_each_is_named(const std::vector<Malformation>& all) {
    for (const auto& [kind, pointer, value] : all) {
        json message = samples()[kind];
        message[json::json_pointer("/" + pointer)] = value;
        std::string name = pointer;
        std::ranges::replace(name, '/', '.');
        EXPECT_THAT(refusal_of(kind, message), HasSubstr("field '" + name + "'")) << value.dump();
    }
}

TEST(ProtocolRefusals, EachUnfitNameIsNamed) {
    std::vector<Malformation> bad;
    for (const auto& [kind, fields] : std::map<std::string, std::vector<std::string>>{
             {"join",
              {"job", "node", "name", "role", "rank_key", "address", "secret", "store_key",
               "command"}},
             {"operate", {"job", "node"}},
             {"assign", {"master_addr", "store_key"}},
             {"read_log", {"at_node"}},
             {"elsewhere", {"endpoint"}}}) {
        for (const std::string& field : fields) {
            bad.push_back({kind, field, ""});
            bad.push_back({kind, field, std::string(kNameBytesMax + 1, 'x')});
            bad.push_back({kind, field, "two\nlines"});
        }
    }
    bad.push_back({"join", "other_addresses", json::array({"10.0.0.1", ""})});
    bad.push_back({"waiting", "joined", json::array({"two\nlines"})});
    expect_each_is_named(bad);
}

TEST(ProtocolRefusals, EachValueOutOfRangeIsNamed) {
    std::vector<Malformation> bad{
        {"report", "round", (std::uint64_t{1} << 53U) + 1},
        {"report", "state", "asleep"},
        {"report", "store_port", 65536},
        {"report", "failure/local_rank", 4294967296},
        {"report", "failure/pid", 1e300},
        {"report", "failure/exit_code", 256},
        {"report", "failure/exit_code", -2},
        {"report", "failure/exit_code", 18446744073709551615U},
        {"report", "failure/signal", 128},
        {"report", "failure/kind", "bored"},
        {"report", "failure/peer_error", "bored"},
        {"report", "finished", json::array({{{"first", 4294967295}, {"count", 1}}})},
        {"join", "workers", (1U << 20U) + 1},
        {"join", "on_exit", {{"0", "fail"}}},
        {"join", "on_exit", {{"256", "fail"}}},
        {"join", "on_exit", {{"02", "fail"}}},
        {"join", "on_exit", {{"x", "fail"}}},
        {"join", "on_exit/2", "explode"},
        {"join", "rank_order", "size"},
        {"join", "nodes_min", 0},
        {"join", "nodes_min", 5},
        {"join", "heartbeat_timeout_ms", 99},
        {"join", "heartbeat_timeout_ms", 3600001},
        {"resumed", "first_step_us", std::uint64_t{1} << 51U},
        {"operate", "action", "dance"},
        {"assign", "master_port", 65536},
        {"read_log", "stream", "both"},
        {"refused", "code", "unknown"},
        {"closed", "outcome", "won"},
        {"closed", "exit_code", 256},
        {"closed", "exit_code", -1}};
    for (const char* key :
         {"last_call_ms", "shutdown_timeout_ms", "grow_after_ms", "regroup_window_ms",
          "prepare_timeout_ms", "finish_timeout_ms", "budgets/delay_ms",
          "budgets/node_failures_window_ms", "at_work_ms", "ended_ago_ms", "join_timeout_ms"}) {
        bad.push_back({"join", key, 2592000001});
    }
    expect_each_is_named(bad);
    json slow = samples()["slow_rank"];
    slow["excess"] = -0.5;
    EXPECT_THAT(refusal_of("slow_rank", slow), HasSubstr("field 'excess'"));
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

}  // namespace
}  // namespace regroup::protocol
