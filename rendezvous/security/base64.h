// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace regroup::security {

/// RFC 4648, with padding.
[[nodiscard]] std::string to_base64(std::string_view bytes);
/// nullopt if `text` is not valid Base64.
[[nodiscard]] std::optional<std::string> from_base64(std::string_view text);

}  // namespace regroup::security
