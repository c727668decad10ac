// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/distributed_data_parallel.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "worker_sdk/src/ddp/gradient_device.h"
#include "worker_sdk/src/ddp/host_exchange.h"

namespace regroup::ddp {

/// Throws Error `invalid_argument`: "data parallel: `detail`".
[[noreturn]] void refuse(const std::string& detail);

/// Throws Error `invalid_argument` naming the first parameter or buffer that cannot be trained over
/// `group`, or an invalid option. No communication.
void check_registration(const ProcessGroup& group, std::span<const Parameter> parameters,
                        std::span<const TensorView> buffers, const DataParallelOptions& options);

/// Throws Error `invalid_argument` naming two ranks with different tensors or options, which would
/// mix up their gradients or wait without end.
void check_same_on_all_ranks(HostExchange& exchange, std::span<const Parameter> parameters,
                             std::span<const TensorView> buffers,
                             const DataParallelOptions& options);

/// A hash of the counts and dtypes of all parameters, in order.
[[nodiscard]] std::uint64_t shapes_of(std::span<const Parameter> parameters);

/// A hash of the bytes of `tensor`. Equal bytes, equal hash, on every machine of one byte order.
[[nodiscard]] std::uint64_t digest_of(ConstTensorView tensor, GradientDevice& device);

/// See DistributedDataParallel::find_replica_difference.
[[nodiscard]] std::optional<ReplicaDifference> find_replica_difference(
    HostExchange& exchange, GradientDevice& device, std::span<const Parameter> parameters);

}  // namespace regroup::ddp
