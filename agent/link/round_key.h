// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "rendezvous/core/messages.h"

namespace regroup::agent {

/// The key of the workers of this round, in hexadecimal digits: the same on all nodes, since it
/// comes from the secret that only the members' agents know. Empty if the daemon gave none.
[[nodiscard]] std::string round_key(const rendezvous::Assignment& assignment);

}  // namespace regroup::agent
