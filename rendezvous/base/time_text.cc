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

}  // namespace regroup
