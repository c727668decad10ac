// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

#include "rendezvous/base/clock.h"
#include "worker_sdk/src/cpu/wire.h"
#include "worker_sdk/src/group/request.h"
#include "worker_sdk/src/group/work.h"

namespace regroup::cpu {

/// One call of the group's user, on its way through the helper thread.
struct Operation {
    Signature signature{};
    TensorView buffer{};      ///< The output; for send the data, which stays unchanged.
    ConstTensorView input{};  ///< For operations with a separate input.
    double factor = 1.0;      ///< What this rank's values are multiplied by before a reduction.
    Instant issued_at{};
    std::shared_ptr<Work::State> work{};
};

[[nodiscard]] inline bool is_message(const Operation& operation) noexcept {
    return is_message(operation.signature.kind);
}

/// Converts the request of a rank in a group of `world_size` ranks.
[[nodiscard]] Operation operation_of(const OperationRequest& request, std::uint32_t world_size);

}  // namespace regroup::cpu
