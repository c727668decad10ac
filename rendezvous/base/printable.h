// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace regroup {

/// `text` as one line for a terminal or a log. Shows characters that would control the terminal,
/// end the line, change its direction or be invisible as \x1b or \u202e, and bytes that are no
/// UTF-8 as \xff. Keeps everything else, tabs included. Applying it twice changes nothing more.
[[nodiscard]] std::string printable(std::string_view text);

/// `json`, a valid text of JSON, for a terminal: each hidden character of UTF-8 as an escape of
/// JSON, \u202e. It decodes to the same values. Every writer of JSON with words of others uses it.
[[nodiscard]] std::string printable_json(std::string json);

/// The lines of `text`, each printable; without an empty one after the last line end.
[[nodiscard]] std::vector<std::string> printable_lines(std::string_view text);

/// "1 node", "3 nodes".
[[nodiscard]] std::string counted(std::size_t count, std::string_view what);

}  // namespace regroup
