// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "rendezvous/base/result.h"
#include "rendezvous/store/store_core.h"
#include "rendezvous/store/store_wire.h"

namespace regroup::store {

/// Executes one request of `client`. Appends the reply to `reply`, unless there is none or the
/// client has to wait for it. Appends to `released` the clients, perhaps including this one, that
/// must now be sent `kStopWaiting`.
///
/// Fails with `invalid_argument` when the store refuses the request or when the reply would be
/// longer than the limit. The store is unchanged then, and the connection must be closed.
Result<void> execute(StoreCore& core, ClientId client, const Request& request, std::string& reply,
                     Released& released);

}  // namespace regroup::store
