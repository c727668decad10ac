// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace regroup::launcher {

/// What a daemon answers to `status`, a JSON object, as tables for people.
[[nodiscard]] std::string status_table(const std::string& json_text);

}  // namespace regroup::launcher
