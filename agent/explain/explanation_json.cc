// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "agent/explain/explanation.h"
#include "rendezvous/json/json_text.h"

namespace regroup::agent {
namespace {

using nlohmann::ordered_json;

constexpr int kExplanationVersion = 1;

ordered_json list(const std::vector<std::string>& texts) {
    return texts.empty() ? ordered_json::array() : ordered_json(texts);
}

ordered_json written(const Mismatch& mismatch) {
    ordered_json object;
    object["what"] = mismatch.what;
    object["values"] = ordered_json::array();
    for (const Mismatch::Side& side : mismatch.sides) {
        object["values"].push_back({{"value", side.value}, {"ranks", side.ranks}});
    }
    return object;
}

ordered_json written(const StuckCollective& stuck) {
    ordered_json object;
    object["recorder"] = stuck.recorder == Recorder::sdk ? "sdk" : "pytorch";
    object["backend"] = stuck.backend;
    object["group"] = stuck.group;
    object["members"] = stuck.members;
    object["members_are_known"] = stuck.members_are_known;
    object["operation"] = stuck.operation;
    object["number"] = stuck.number;
    object["type"] = stuck.type;
    object["elements"] = stuck.elements ? ordered_json(*stuck.elements) : ordered_json(nullptr);
    object["entered"] = stuck.entered;
    object["not_started"] = stuck.not_started;
    object["completed"] = stuck.completed;
    object["not_entered"] = stuck.not_entered;
    object["unknown"] = stuck.unknown;
    object["mismatches"] = ordered_json::array();
    for (const Mismatch& mismatch : stuck.mismatches) {
        object["mismatches"].push_back(written(mismatch));
    }
    object["frames"] = list(stuck.frames);
    return object;
}

ordered_json written(const StuckMessage& message) {
    ordered_json object;
    object["recorder"] = message.recorder == Recorder::sdk ? "sdk" : "pytorch";
    object["group"] = message.group;
    object["rank"] = message.rank;
    object["operation"] = message.operation;
    object["number"] = message.number;
    object["peer"] = message.peer ? ordered_json(*message.peer) : ordered_json(nullptr);
    return object;
}

ordered_json written(const RankFacts& rank) {
    ordered_json object;
    object["rank"] = rank.rank;
    object["state"] = to_string(rank.state);
    object["node"] = rank.node;
    object["pid"] = rank.pid;
    object["step"] = rank.step ? ordered_json(*rank.step) : ordered_json(nullptr);
    object["doing"] = rank.doing;
    object["waiting"] = rank.waiting;
    object["silent_ms"] = rank.silent_ms;
    object["frames"] = list(rank.frames);
    object["recorders"] = ordered_json::array();
    for (const FlightRecord& record : rank.records) {
        object["recorders"].push_back(record.recorder == Recorder::sdk ? "sdk" : "pytorch");
    }
    return object;
}

}  // namespace

std::string json_of(const HangFacts& facts, const Explanation& explanation) {
    ordered_json object;
    object["version"] = kExplanationVersion;
    object["job"] = facts.job;
    object["round"] = facts.round;
    object["reason"] = facts.reason;
    object["world_size"] = facts.world_size;
    object["verdict"] = to_string(explanation.verdict);
    object["culprits"] = explanation.culprits;
    object["behind"] = explanation.behind;
    object["collectives"] = ordered_json::array();
    for (const StuckCollective& stuck : explanation.collectives) {
        object["collectives"].push_back(written(stuck));
    }
    object["messages"] = ordered_json::array();
    for (const StuckMessage& message : explanation.messages) {
        object["messages"].push_back(written(message));
    }
    object["ranks"] = ordered_json::array();
    for (const RankFacts& rank : facts.ranks) {
        object["ranks"].push_back(written(rank));
    }
    return ascii_json_text(object);
}

}  // namespace regroup::agent
