// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/security/key.h"

namespace regroup::net {

/// Encrypts `text`, so that only who knows `key` can read it, and nobody else can make it. `place`
/// says what the text is; it is no part of the result, and must be the same for `unseal`.
[[nodiscard]] std::string seal(const security::Key& key, std::string_view place,
                               std::string_view text);
/// Returns nothing for bytes that `seal` has not made with the same key and place.
[[nodiscard]] std::optional<std::string> unseal(const security::Key& key, std::string_view place,
                                                std::string_view sealed);

}  // namespace regroup::net
