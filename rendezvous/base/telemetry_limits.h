// SPDX-License-Identifier: Apache-2.0
//
// Limits of the values that a training program reports: the same in the SDK, in the agent and on
// the wire.
#pragma once

#include <cstddef>
#include <string_view>

namespace regroup {

/// The most values that a training program reports.
inline constexpr std::size_t kReportedValuesMax = 8;
inline constexpr std::size_t kValueNameBytesMax = 32;
/// The most slow ranks that are named at a time.
inline constexpr std::size_t kSlowRanksMax = 4;

/// The names of reported values go into labels of Prometheus: a lower-case letter or an underscore,
/// then such characters and digits; at most kValueNameBytesMax.
[[nodiscard]] constexpr bool is_value_name(std::string_view name) noexcept {
    if (name.empty() || name.size() > kValueNameBytesMax || (name[0] >= '0' && name[0] <= '9')) {
        return false;
    }
    for (const char c : name) {
        if ((c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_') {
            return false;
        }
    }
    return true;
}

}  // namespace regroup
