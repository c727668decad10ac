// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/context.h>

#include <optional>
#include <string_view>

#include "rendezvous/security/key.h"
#include "worker_sdk/src/net/handshake.h"

namespace regroup::net {

/// A key of the ranks of `context`, one for each `purpose`; none if they have no secret. Throws
/// Error `invalid_argument` if the secret is too short.
[[nodiscard]] std::optional<security::Key> group_key(const Context& context,
                                                     std::string_view purpose);

/// How connections for `purpose` are protected. Throws likewise, and if the context asks for
/// encryption without a secret.
[[nodiscard]] Protection protection_of(const Context& context, std::string_view purpose);

}  // namespace regroup::net
