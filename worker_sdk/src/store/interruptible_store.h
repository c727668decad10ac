// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/store.h>

#include <cstdint>
#include <memory>
#include <string>

#include "worker_sdk/src/base/round_scope.h"

namespace regroup {

/// As connect_store, but when `scope` is interrupted, connecting and every later call end as
/// `fenced` at once.
[[nodiscard]] std::shared_ptr<Store> connect_interruptible_store(const std::string& host,
                                                                 std::uint16_t port,
                                                                 Store::Duration timeout,
                                                                 std::shared_ptr<RoundScope> scope);

/// Another connection to the server of `store`, which ends with `scope`, for a thread that waits
/// while others use the store. nullptr if `store` is no connection of this process.
[[nodiscard]] std::shared_ptr<Store> connect_again(const std::shared_ptr<Store>& store,
                                                   std::shared_ptr<RoundScope> scope);

}  // namespace regroup
