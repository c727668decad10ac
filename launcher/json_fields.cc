// SPDX-License-Identifier: Apache-2.0
#include "launcher/json_fields.h"

#include <algorithm>
#include <cmath>

#include "rendezvous/base/printable.h"

namespace regroup::launcher {

using nlohmann::json;

const json& field(const json& object, const char* key) {
    static const json kNothing;
    const auto found = object.is_object() ? object.find(key) : object.end();
    return object.is_object() && found != object.end() ? *found : kNothing;
}

std::string text(const json& object, const char* key) {
    const json& value = field(object, key);
    return value.is_string() ? printable(value.get_ref<const std::string&>()) : "";
}

std::uint64_t number(const json& object, const char* key) {
    const json& value = field(object, key);
    return value.is_number_unsigned() ? value.get<std::uint64_t>() : 0;
}

double real(const json& object, const char* key) {
    const json& value = field(object, key);
    const double number = value.is_number() ? value.get<double>() : 0;
    return std::isfinite(number) ? number : 0;
}

bool flag(const json& object, const char* key) {
    const json& value = field(object, key);
    return value.is_boolean() && value.get<bool>();
}

Duration seconds(const json& object, const char* key) {
    return std::chrono::duration_cast<Duration>(
        std::chrono::duration<double>(std::clamp(real(object, key), 0.0, 1e9)));
}

Duration total_of(const json& incident) {
    std::uint64_t total_us = 0;
    for (const char* stage : {"detect_us", "decide_us", "stop_us", "join_us", "communicator_us",
                              "state_us", "first_step_us"}) {
        total_us += number(incident, stage);
    }
    return std::chrono::microseconds(total_us);
}

std::string ranks_of(const json& node) {
    if (!node.is_object() || !node.contains("first_rank")) {
        return "-";
    }
    const std::uint64_t first = number(node, "first_rank");
    const std::uint64_t workers = number(node, "workers");
    return workers <= 1 ? std::to_string(first)
                        : std::to_string(first) + "-" + std::to_string(first + workers - 1);
}

std::string count(std::uint64_t number, const std::string& what) {
    return std::to_string(number) + " " + what + (number == 1 ? "" : "s");
}

}  // namespace regroup::launcher
