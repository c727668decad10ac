// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace regroup::journal {

/// RFC 4648, with padding, as etcd's JSON has keys and values.
[[nodiscard]] std::string to_base64(std::string_view bytes);
/// Nothing if `text` is not that.
[[nodiscard]] std::optional<std::string> from_base64(std::string_view text);

}  // namespace regroup::journal
