// SPDX-License-Identifier: Apache-2.0
#include "launcher/flag_values.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>

namespace regroup::launcher {

namespace {

constexpr std::size_t kNameBytesMax = 255;

std::optional<std::uint8_t> parse_streams(std::string_view text) {
    const auto number = parse_number<std::uint8_t>(text);
    return number && *number <= 3 ? number : std::nullopt;
}

std::optional<int> signal_number(std::string_view name) {
    for (int number = 1; number < NSIG; ++number) {
        const char* abbreviation = ::sigabbrev_np(number);
        if (abbreviation != nullptr && name == std::string("SIG") + abbreviation) {
            return number;
        }
    }
    return std::nullopt;
}

}  // namespace

std::string in_quotes(std::string_view text) {
    return "'" + std::string(text) + "'";
}

std::string seconds_text(Duration duration) {
    return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(duration).count()) +
           " seconds";
}

FlagTable::Take seconds_into(Duration& out, Duration max) {
    return [&out, max](const std::string& text) -> std::string {
        char* end = nullptr;
        const double seconds = std::strtod(text.c_str(), &end);
        if (text.empty() || *end != '\0' || !std::isfinite(seconds) || seconds < 0) {
            return "must be a number of seconds, zero or more, not " + in_quotes(text);
        }
        if (seconds > std::chrono::duration<double>(max).count()) {
            return "must be at most " + seconds_text(max) + ", not " + in_quotes(text);
        }
        out = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
        return "";
    };
}

FlagTable::Take text_into(std::string& out) {
    return [&out](const std::string& text) -> std::string {
        out = text;
        return "";
    };
}

FlagTable::Take name_into(std::string& out) {
    return [&out](const std::string& text) -> std::string {
        out = text;
        const bool printable = std::none_of(text.begin(), text.end(), [](char c) {
            return static_cast<unsigned char>(c) < ' ' || c == '\x7F';
        });
        return text.size() <= kNameBytesMax && printable
                   ? ""
                   : "must be at most " + std::to_string(kNameBytesMax) +
                         " bytes, without control characters";
    };
}

FlagTable::Take word_into(std::string& out, std::vector<std::string> words) {
    return [&out, words = std::move(words)](const std::string& text) -> std::string {
        if (std::find(words.begin(), words.end(), text) == words.end()) {
            std::string list;
            for (const std::string& word : words) {
                list += list.empty() ? word : (word == words.back() ? " or " : ", ") + word;
            }
            return "must be " + list + ", not " + in_quotes(text);
        }
        out = text;
        return "";
    };
}

FlagTable::Take node_range_into(std::uint32_t& min_out, std::uint32_t& max_out) {
    return [&min_out, &max_out](const std::string& text) -> std::string {
        const std::size_t colon = text.find(':');
        const auto min = parse_number<std::uint32_t>(text.substr(0, colon));
        const auto max =
            colon == text.npos ? min : parse_number<std::uint32_t>(text.substr(colon + 1));
        if (!min || !max || *min == 0) {
            return "must be N or MIN:MAX with whole numbers from 1, not " + in_quotes(text);
        }
        if (*min > *max) {
            return text + ": the minimum, " + std::to_string(*min) + ", exceeds the maximum, " +
                   std::to_string(*max);
        }
        min_out = *min;
        max_out = *max;
        return "";
    };
}

FlagTable::Take streams_into(agent::StreamSpec& out) {
    return [&out](const std::string& text) -> std::string {
        std::string wrong =
            "must be 0 (none), 1 (stdout), 2 (stderr) or 3 (both), or a list "
            "of LOCAL_RANK:STREAMS such as 0:3,1:2, not " +
            in_quotes(text);
        out = {};
        if (const auto all = parse_streams(text)) {
            out.all = *all;
            return "";
        }
        for (const std::string_view part : split(text, ',')) {
            const std::size_t colon = part.find(':');
            const auto rank = parse_number<std::uint32_t>(part.substr(0, colon));
            const auto streams =
                colon == part.npos ? std::nullopt : parse_streams(part.substr(colon + 1));
            if (!rank || !streams) {
                return wrong;
            }
            out.by_local_rank[*rank] = *streams;
        }
        return "";
    };
}

FlagTable::Take local_ranks_into(std::optional<std::set<std::uint32_t>>& out) {
    return [&out](const std::string& text) -> std::string {
        out.reset();
        if (text.empty()) {
            return "";
        }
        for (const std::string_view part : split(text, ',')) {
            const auto rank = parse_number<std::uint32_t>(trimmed(part));
            if (!rank) {
                return "must be a list of local ranks such as 0,3, not " + in_quotes(text);
            }
            if (!out) {
                out.emplace();
            }
            out->insert(*rank);
        }
        return "";
    };
}

FlagTable::Take needles_into(std::vector<std::string>& out) {
    return [&out](const std::string& text) -> std::string {
        out.clear();
        std::string item;
        for (std::size_t i = 0; i <= text.size(); ++i) {
            const bool literal = text.compare(i, 2, ",,") == 0;
            if (i < text.size() && (text[i] != ',' || literal)) {
                item += text[i];
                i += literal ? 1 : 0;
            } else if (!item.empty()) {
                out.push_back(std::exchange(item, ""));
            }
        }
        return "";
    };
}

FlagTable::Take signals_into(std::vector<int>& numbers, std::string& names) {
    return [&numbers, &names](const std::string& text) -> std::string {
        numbers.clear();
        names = text;
        std::vector<std::string_view> parts = split(text, ',');
        if (parts.back().empty()) {
            parts.pop_back();
        }
        for (const std::string_view part : parts) {
            const auto number = signal_number(trimmed(part));
            if (!number) {
                return "names no signal of this system: " + in_quotes(part);
            }
            if (*number == SIGKILL || *number == SIGSTOP) {
                return "cannot have " + std::string(part) + ", which no process can handle";
            }
            numbers.push_back(*number);
        }
        return "";
    };
}

FlagTable::Take dialect_into(store::Dialect& out) {
    return [&out](const std::string& text) -> std::string {
        std::string word;
        std::string wrong = word_into(word, {"1.13", "2.1"})(text);
        out = word == "2.1" ? store::Dialect::v2_1 : store::Dialect::v1_13;
        return wrong;
    };
}

Flag store_dialect_flag() {
    return {
        "--store-dialect",
        "RELEASE",
        "1.13",
        "PyTorch release of store clients older than 2.2: 1.13 (also for 2.0) or 2.1. The store "
        "cannot tell their protocols apart",
        "--store-dialect=2.1",
        "",
        true};
}

FlagTable::Take bytes_into(std::uint64_t& out) {
    return [&out](const std::string& text) -> std::string {
        std::string digits = text;
        unsigned shift = 0;
        const std::string units = "kMG";
        if (!digits.empty() && units.find(digits.back()) != units.npos) {
            shift = 10 * (static_cast<unsigned>(units.find(digits.back())) + 1);
            digits.pop_back();
        }
        const auto number = parse_number<std::uint64_t>(digits);
        if (!number || *number > (UINT64_MAX >> shift)) {
            return "must be a number of bytes such as 500k, 100M or 2G, not " + in_quotes(text);
        }
        out = *number << shift;
        return "";
    };
}

}  // namespace regroup::launcher
