// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "agent/explain/explanation.h"
#include "rendezvous/json/json_text.h"

namespace regroup::agent {

using nlohmann::ordered_json;

static ordered_json name_of(Recorder recorder) {
    return recorder == Recorder::sdk ? "sdk" : recorder == Recorder::pytorch ? "pytorch" : "agent";
}

template <class Number>
static ordered_json or_null(const std::optional<Number>& number) {
    return number ? ordered_json(*number) : ordered_json(nullptr);
}

static void to_json(ordered_json& object, const Mismatch::Side& side) {
    object = {{"value", side.value}, {"ranks", side.ranks}};
}

static void to_json(ordered_json& object, const Mismatch& mismatch) {
    object = {{"what", mismatch.what}, {"values", mismatch.sides}};
}

static void to_json(ordered_json& object, const StuckCollective& stuck) {
    object = {{"recorder", name_of(stuck.recorder)},
              {"backend", stuck.backend},
              {"group", stuck.group},
              {"members", stuck.members},
              {"members_are_known", stuck.members_are_known},
              {"operation", stuck.operation},
              {"number", stuck.number},
              {"type", stuck.type},
              {"elements", or_null(stuck.elements)},
              {"entered", stuck.entered},
              {"not_started", stuck.not_started},
              {"completed", stuck.completed},
              {"not_entered", stuck.not_entered},
              {"unknown", stuck.unknown},
              {"mismatches", stuck.mismatches},
              {"frames", stuck.frames}};
}

static void to_json(ordered_json& object, const StuckMessage& message) {
    object = {{"recorder", name_of(message.recorder)},
              {"group", message.group},
              {"rank", message.rank},
              {"operation", message.operation},
              {"number", message.number},
              {"peer", or_null(message.peer)}};
}

static void to_json(ordered_json& object, const FlightRecord& record) {
    object = name_of(record.recorder);
}

static void to_json(ordered_json& object, const RankFacts& rank) {
    object = {{"rank", rank.rank},        {"state", to_string(rank.state)}, {"node", rank.node},
              {"pid", rank.pid},          {"step", or_null(rank.step)},     {"doing", rank.doing},
              {"waiting", rank.waiting},  {"silent_ms", rank.silent_ms},    {"frames", rank.frames},
              {"recorders", rank.records}};
}

std::string json_of(const HangFacts& facts, const Explanation& explanation) {
    constexpr int kVersion = 1;
    const ordered_json object = {{"version", kVersion},
                                 {"job", facts.job},
                                 {"round", facts.round},
                                 {"reason", facts.reason},
                                 {"world_size", facts.world_size},
                                 {"verdict", to_string(explanation.kind)},
                                 {"culprits", explanation.culprits},
                                 {"behind", explanation.behind},
                                 {"collectives", explanation.collectives},
                                 {"messages", explanation.messages},
                                 {"ranks", facts.ranks}};
    return ascii_json_text(object);
}

}  // namespace regroup::agent
