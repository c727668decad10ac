// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/result.h"

namespace regroup::agent {

/// A GPU as CUDA would number it for a worker that inherits our environment.
struct Gpu {
    std::string address;  ///< On the PCI bus, "0000:3b:00.0".
    std::string uuid;     ///< "GPU-..."; empty when the driver does not tell.
    std::string model;    ///< Empty when the driver does not tell.
    /// The kernel's number; 0 where the firmware does not say (negative in sysfs).
    int numa_node = 0;
    bool numa_node_known = false;

    bool operator==(const Gpu&) const = default;
};

/// The GPUs that local ranks 0, 1, ... use, in this order.
struct Gpus {
    std::vector<Gpu> list;
    std::string note;  ///< One sentence when their order is uncertain; else empty.
};

/// Where to look and what the environment says about it.
struct GpuSearch {
    std::filesystem::path root = "/";         ///< Below it lie proc and sys.
    std::optional<std::string> visible;       ///< CUDA_VISIBLE_DEVICES, if set.
    std::optional<std::string> device_order;  ///< CUDA_DEVICE_ORDER, if set.
};

/// Finds the GPUs without loading a driver: from /proc/driver/nvidia/gpus and sysfs, in the order
/// of the PCI bus. That is CUDA's order with CUDA_DEVICE_ORDER=PCI_BUS_ID, and by default where all
/// models are alike; CUDA puts the fastest first, and which that is only the driver knows. `note`
/// says so when it matters. `visible` is obeyed as CUDA does: indices, UUIDs or unique beginnings
/// of them, up to the first entry that names no GPU. None found is no error. Errors:
/// invalid_argument, when `visible` names a GPU twice, or by something whose GPU only the driver
/// knows (a part of one, MIG, or a UUID that it has not told yet).
Result<Gpus> find_gpus(const GpuSearch& search);

}  // namespace regroup::agent
