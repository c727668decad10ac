// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace regroup::launcher {

/// The names of the columns of event_text().
[[nodiscard]] std::string event_heading();
/// An event as a line of columns for people, without a newline. A line that is no JSON object is
/// printed as it is.
[[nodiscard]] std::string event_text(const std::string& json_line);

/// The event as it is, of ASCII characters: a terminal obeys some others.
[[nodiscard]] std::string event_json(const std::string& json_line);

}  // namespace regroup::launcher
