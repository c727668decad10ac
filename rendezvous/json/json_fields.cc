// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/json/json_fields.h"

#include <cmath>

namespace regroup {

using nlohmann::json;

const json& field_in(const json& object, std::string_view key) {
    static const json kNothing;
    const auto found = object.is_object() ? object.find(key) : object.end();
    return object.is_object() && found != object.end() ? *found : kNothing;
}

std::string text_in(const json& object, std::string_view key) {
    const json& value = field_in(object, key);
    return value.is_string() ? value.get<std::string>() : "";
}

std::uint64_t number_in(const json& object, std::string_view key) {
    const json& value = field_in(object, key);
    return value.is_number_unsigned() ? value.get<std::uint64_t>() : 0;
}

double real_in(const json& object, std::string_view key) {
    const json& value = field_in(object, key);
    const double number = value.is_number() ? value.get<double>() : 0;
    return std::isfinite(number) ? number : 0;
}

bool flag_in(const json& object, std::string_view key) {
    const json& value = field_in(object, key);
    return value.is_boolean() && value.get<bool>();
}

}  // namespace regroup
