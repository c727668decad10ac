// SPDX-License-Identifier: Apache-2.0
//
// Parsers for the values of flags. Each function returns a FlagTable::Take, which stores the value
// or returns the error.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "agent/output/output_layout.h"
#include "launcher/flag_table.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/text.h"
#include "rendezvous/core/job_policy.h"
#include "rendezvous/store/store_wire.h"

namespace regroup::launcher {

[[nodiscard]] std::string in_quotes(std::string_view text);
/// "3600 seconds".
[[nodiscard]] std::string seconds_text(Duration duration);

template <class Number>
FlagTable::Take number_into(Number& out, Number min, Number max) {
    return [&out, min, max](const std::string& text) -> std::string {
        const auto number = parse_number<std::int64_t>(text);
        if (!number || *number < static_cast<std::int64_t>(min) ||
            *number > static_cast<std::int64_t>(max)) {
            return "must be a whole number from " + std::to_string(min) + " to " +
                   std::to_string(max) + ", not " + in_quotes(text);
        }
        out = static_cast<Number>(*number);
        return "";
    };
}

/// Seconds, with a fraction if need be, from 0 to `max`.
[[nodiscard]] FlagTable::Take seconds_into(Duration& out, Duration max = rendezvous::kWaitMax);
[[nodiscard]] FlagTable::Take text_into(std::string& out);
/// A name that is sent to other nodes: at most 255 bytes, no control characters.
[[nodiscard]] FlagTable::Take name_into(std::string& out);
/// One of `words`.
[[nodiscard]] FlagTable::Take word_into(std::string& out, std::vector<std::string> words);
/// "N" or "MIN:MAX".
[[nodiscard]] FlagTable::Take node_range_into(std::uint32_t& min, std::uint32_t& max);
/// "3", or "0:1,1:3".
[[nodiscard]] FlagTable::Take streams_into(agent::StreamSpec& out);
/// "0,2,5".
[[nodiscard]] FlagTable::Take local_ranks_into(std::optional<std::set<std::uint32_t>>& out);
/// "a,b". Two commas stand for one comma inside an item.
[[nodiscard]] FlagTable::Take needles_into(std::vector<std::string>& out);
/// "SIGTERM,SIGINT".
[[nodiscard]] FlagTable::Take signals_into(std::vector<int>& numbers, std::string& names);
/// "1.13" or "2.1".
[[nodiscard]] FlagTable::Take dialect_into(store::Dialect& out);
/// The flag --store-dialect, which several commands have.
[[nodiscard]] Flag store_dialect_flag();
/// Bytes, with an optional unit k, M or G: "100M".
[[nodiscard]] FlagTable::Take bytes_into(std::uint64_t& out);

}  // namespace regroup::launcher
