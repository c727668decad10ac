// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstddef>
#include <string_view>
#include <system_error>

namespace regroup::agent {

/// The first line of a record of /dev/kmsg, "3,1234,5678901,-;text", from its text on. Empty if
/// another than the kernel wrote it: its first number has the facility in the bits above the third.
/// Any user can make the kernel quote a text, so look for what the line begins with.
[[nodiscard]] inline std::string_view kernel_text(std::string_view record) noexcept {
    unsigned priority = 0;
    const auto [end, error] =
        std::from_chars(record.data(), record.data() + record.size(), priority);
    const std::size_t semicolon = record.find(';');
    if (error != std::errc() || priority > 7 || semicolon == std::string_view::npos) {
        return {};
    }
    const std::string_view text = record.substr(semicolon + 1);
    return text.substr(0, text.find('\n'));
}

}  // namespace regroup::agent
