// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/result.h"

namespace regroup::agent {

/// A GPU, numbered as CUDA numbers it for a worker that inherits our environment.
struct Gpu {
    std::string address;  ///< On the PCI bus, "0000:3b:00.0".
    std::string uuid;     ///< "GPU-..."; empty if the driver does not report it.
    std::string model;    ///< Empty if the driver does not report it.
    /// The kernel's number; 0 if the firmware does not report it (negative in sysfs).
    int numa_node = 0;
    bool numa_node_known = false;

    bool operator==(const Gpu&) const = default;
};

/// The GPUs that local ranks 0, 1, ... use, in this order.
struct Gpus {
    std::vector<Gpu> list;
    std::string note;  ///< One sentence if their order is uncertain; else empty.
};

/// The folder to search, and the relevant environment.
struct GpuSearch {
    std::filesystem::path root = "/";         ///< The folder with proc and sys.
    std::optional<std::string> visible;       ///< CUDA_VISIBLE_DEVICES, if set.
    std::optional<std::string> device_order;  ///< CUDA_DEVICE_ORDER, if set.
};

/// Finds the GPUs without loading a driver: from /proc/driver/nvidia/gpus and sysfs, in the order
/// of the PCI bus. CUDA has the same order with CUDA_DEVICE_ORDER=PCI_BUS_ID, or if all models are
/// alike. Otherwise CUDA puts the fastest first, which only the driver knows; then `note` says so.
/// `visible` has CUDA's rules: indices, UUIDs or unique beginnings of them, up to the first entry
/// that names no GPU. No GPU is no error. Errors: invalid_argument, when `visible` names a GPU
/// twice, or has an entry whose GPU only the driver knows (a part of a GPU, MIG, or a UUID that is
/// not reported yet).
Result<Gpus> find_gpus(const GpuSearch& search);

}  // namespace regroup::agent
