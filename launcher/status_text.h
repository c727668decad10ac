// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace regroup::launcher {

/// The answer of a daemon to `status`, a JSON object, as tables for the terminal.
[[nodiscard]] std::string status_table(const std::string& json_text);

}  // namespace regroup::launcher
