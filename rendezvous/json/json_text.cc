// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/json/json_text.h"

#include <nlohmann/json.hpp>

namespace regroup {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

template <class Json>
std::string text_of(const Json& value, bool in_ascii) {
    return value.dump(-1, ' ', in_ascii, Json::error_handler_t::replace);
}

}  // namespace

json parse_json(std::string_view text) {
    return json::parse(text, nullptr, /*allow_exceptions=*/false);
}
ordered_json parse_ordered_json(std::string_view text) {
    return ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
}

const json& field_of(const json& object, const char* field) {
    static const json kNothing;
    const auto found = object.is_object() ? object.find(field) : object.end();
    return found == object.end() ? kNothing : *found;
}

std::string json_text(const json& value) {
    return text_of(value, false);
}
std::string json_text(const ordered_json& value) {
    return text_of(value, false);
}
std::string ascii_json_text(const json& value) {
    return text_of(value, true);
}
std::string ascii_json_text(const ordered_json& value) {
    return text_of(value, true);
}

}  // namespace regroup
