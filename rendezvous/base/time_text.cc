// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/base/time_text.h"

namespace regroup {

namespace {

std::string formatted(const std::tm* parts, const char* format) {
    char text[64];
    return parts != nullptr ? std::string(text, std::strftime(text, sizeof text, format, parts))
                            : "";
}

}  // namespace

std::string local_time_text(std::time_t seconds) {
    std::tm parts{};
    return formatted(::localtime_r(&seconds, &parts), "%Y-%m-%d %H:%M:%S");
}

std::string universal_time_text(std::time_t seconds) {
    std::tm parts{};
    return formatted(::gmtime_r(&seconds, &parts), "%Y-%m-%dT%H:%M:%SZ");
}

std::string format_age(Duration age) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(age).count();
    const auto two = [](auto large, const char* unit, auto small, const char* small_unit) {
        return std::to_string(large) + unit +
               (small == 0 ? "" : " " + std::to_string(small) + small_unit);
    };
    if (seconds < 60) {
        return std::to_string(seconds) + " s";
    }
    if (seconds < 3600) {
        return std::to_string(seconds / 60) + " min";
    }
    return seconds < 48 * 3600 ? two(seconds / 3600, " h", seconds / 60 % 60, " min")
                               : two(seconds / 86400, " d", seconds / 3600 % 24, " h");
}

}  // namespace regroup
