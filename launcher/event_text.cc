// SPDX-License-Identifier: Apache-2.0
#include "launcher/event_text.h"

#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include "launcher/json_fields.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/json/json_text.h"

namespace regroup::launcher {

namespace {

using nlohmann::json;

// Of all columns but the last.
constexpr std::array<std::size_t, 6> kWidths{24, 11, 5, 8, 12, 7};

std::string columns(const std::array<std::string, kWidths.size()>& values,
                    const std::string& last) {
    std::string line;
    for (std::size_t i = 0; i < kWidths.size(); ++i) {
        line += values[i];
        line.append(kWidths[i] - std::min(kWidths[i], values[i].size()) + 1, ' ');
    }
    line += last;
    return line.substr(0, line.find_last_not_of(' ') + 1);
}

/// The most that the event says.
std::string what(const json& event) {
    for (const char* key : {"summary", "text"}) {
        if (std::string sentence = text(event, key); !sentence.empty()) {
            return sentence;
        }
    }
    return text(event, "cause");
}

}  // namespace

std::string event_heading() {
    return columns({"TIME", "EVENT", "ROUND", "STEP", "NODE", "RANKS"}, "");
}

std::string event_json(const std::string& json_line) {
    const auto event = parse_ordered_json(json_line);
    return event.is_discarded() ? printable(json_line) : printable_json(json_text(event));
}

std::string event_text(const std::string& json_line) {
    const json event = parse_json(json_line);
    if (!event.is_object()) {
        return printable(json_line);
    }
    const bool has_rank = event.contains("rank");
    const std::string ranks = has_rank ? std::to_string(number_in(event, "rank"))
                              : number_in(event, "workers") > 0 ? ranks_of(event)
                                                                : "-";
    const std::string node = text(event, "node");
    return columns(
        {text(event, "time"), text(event, "event"), std::to_string(number_in(event, "round")),
         std::to_string(number_in(event, "step")), node.empty() ? "-" : node, ranks},
        what(event));
}

}  // namespace regroup::launcher
