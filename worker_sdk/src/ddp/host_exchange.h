// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>
#include <regroup/tensor_view.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "worker_sdk/src/ddp/gradient_device.h"

namespace regroup::ddp {

/// Exchanges small values among the ranks, from host memory to host memory, for a group on any
/// device. Every call blocks, is issued by all ranks in the same order, and throws as the group.
class HostExchange {
   public:
    /// Both outlive it.
    HostExchange(ProcessGroup& group, GradientDevice& device) : group_(group), device_(device) {}

    /// [world_size, facts.size()], row i from rank i. Equally many facts on all ranks.
    [[nodiscard]] std::vector<std::int64_t> gather(std::span<const std::int64_t> facts);
    /// In place: all ranks get the values of `root`.
    void broadcast(std::span<std::int64_t> facts, std::uint32_t root);
    /// In place: the largest of all ranks'.
    void maximum(std::span<std::uint8_t> facts);

   private:
    /// Memory of the group's device as large as `host`, with its contents; on the host, itself.
    [[nodiscard]] TensorView stage(TensorView host);
    void unstage(TensorView staged, TensorView host);

    ProcessGroup& group_;
    GradientDevice& device_;
    Buffer scratch_;
};

}  // namespace regroup::ddp
