// SPDX-License-Identifier: Apache-2.0
//
// The text of `regroup status`. Pure.
#pragma once

#include <string>

namespace regroup::launcher::top {

/// The answer of a daemon to `status`, a JSON object, as tables for the terminal. An answer of
/// another form is shown as it is, on one line.
[[nodiscard]] std::string status_table(const std::string& json_text);

/// The same answer as JSON on one line, of ASCII characters. An answer that is no JSON is
/// printable.
[[nodiscard]] std::string status_json(const std::string& json_text);

}  // namespace regroup::launcher::top
