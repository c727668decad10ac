// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "rendezvous/base/clock.h"
#include "rendezvous/client/endpoint.h"
#include "rendezvous/security/credentials.h"

namespace regroup::rendezvous {

/// Connects to a daemon as ControlClient does, sends `frames`, and returns when the daemon has read
/// them or after `limit`. For a process without an event loop. `daemon` has a numeric address.
/// `name`: the host as the user wrote it, which the daemon's certificate must have.
void deliver(const Endpoint& daemon, const std::string& name, std::string_view frames,
             const security::Identity& identity, Duration limit);

}  // namespace regroup::rendezvous
