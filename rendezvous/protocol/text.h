// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

namespace regroup::protocol {

/// The first or the last bytes of `text`, at most `bytes_max`, without half a UTF-8 character.
[[nodiscard]] std::string beginning_of(const std::string& text, std::size_t bytes_max);
[[nodiscard]] std::string end_of(const std::string& text, std::size_t bytes_max);

/// `text` in quotes, short and on one line, for a message about input from an unknown peer, which
/// may end up on a terminal.
[[nodiscard]] std::string quoted(const std::string& text);

/// True if `text` has a character that controls a terminal.
[[nodiscard]] bool has_control_characters(const std::string& text);

}  // namespace regroup::protocol
