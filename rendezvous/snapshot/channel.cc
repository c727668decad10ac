// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/snapshot/channel.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "rendezvous/base/names.h"
#include "rendezvous/base/utf8.h"
#include "rendezvous/json/json_fields.h"
#include "rendezvous/json/json_text.h"

namespace regroup::snapshot {

namespace {

constexpr std::size_t kErrorBytesMax = 2048;
constexpr std::size_t kEndpointBytesMax = 512;

}  // namespace

std::string_view to_string(Ask::Kind kind) noexcept {
    return name_in({"room", "holdings", "image", "adopt", "saved", "whole", "kept", "copies_to"},
                   kind);
}

Range range_of(const Ask& ask, std::uint64_t bytes) noexcept {
    const std::uint64_t begin = std::min(ask.begin, bytes);
    const std::uint64_t left = bytes - begin;
    return {begin, ask.bytes == 0 ? left : std::min(ask.bytes, left)};
}

std::string encode(const Ask& ask) {
    return json_text(nlohmann::json{{"ask", to_string(ask.kind)},
                                    {"state", ask.id.name},
                                    {"part", ask.id.part},
                                    {"parts", ask.id.parts},
                                    {"history", ask.version.history},
                                    {"round", ask.version.round},
                                    {"step", ask.version.step},
                                    {"begin", ask.begin},
                                    {"bytes", ask.bytes},
                                    {"spare", ask.spare},
                                    {"place", to_string(ask.place)},
                                    {"endpoint", beginning_of(ask.endpoint, kEndpointBytesMax)},
                                    {"replicated", ask.replicated},
                                    {"fresh", ask.fresh},
                                    {"write", ask.write},
                                    {"patient", ask.patient}});
}

std::string encode(const Answer& answer) {
    return json_text(nlohmann::json{{"error", beginning_of(answer.error, kErrorBytesMax)},
                                    {"offset", answer.offset},
                                    {"bytes", answer.bytes},
                                    {"write", answer.write},
                                    {"unreachable", answer.unreachable}});
}

Result<Ask> decode_ask(std::string_view packet) {
    const nlohmann::json object = parse_json(packet);
    const auto kind = value_named<Ask::Kind>(text_in(object, "ask"));
    const auto place = value_named<Holding::Place>(text_in(object, "place"));
    const std::uint64_t part = number_in(object, "part");
    const std::uint64_t parts = number_in(object, "parts");
    Ask ask;
    ask.id.name = text_in(object, "state");
    if (!kind || !place || parts == 0 || parts > kPartsMax || part >= parts ||
        !is_state_name(ask.id.name)) {
        return invalid_argument("a worker's message about snapshots is malformed");
    }
    ask.kind = *kind;
    ask.id.part = static_cast<std::uint32_t>(part);
    ask.id.parts = static_cast<std::uint32_t>(parts);
    ask.version = {number_in(object, "history"), number_in(object, "round"),
                   number_in(object, "step")};
    ask.begin = number_in(object, "begin");
    ask.bytes = number_in(object, "bytes");
    ask.spare = number_in(object, "spare");
    ask.place = *place;
    ask.endpoint = text_in(object, "endpoint");
    ask.replicated = flag_in(object, "replicated");
    ask.fresh = flag_in(object, "fresh");
    ask.write = flag_in(object, "write");
    ask.patient = flag_in(object, "patient");
    return ask;
}

Result<Answer> decode_answer(std::string_view packet) {
    const nlohmann::json object = parse_json(packet);
    if (!object.is_object()) {
        return invalid_argument("the agent's answer about a snapshot is malformed");
    }
    return Answer{text_in(object, "error"), number_in(object, "offset"), number_in(object, "bytes"),
                  flag_in(object, "write"), flag_in(object, "unreachable")};
}

}  // namespace regroup::snapshot
