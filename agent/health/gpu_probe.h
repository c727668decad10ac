// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/health/facts.h"
#include "agent/health/places.h"

namespace regroup::health {

/// Asks the NVIDIA driver about all GPUs of this machine, and reads their errors from the kernel's
/// log if that is permitted. Takes tens of milliseconds if all is well, and may never return if it
/// is not.
[[nodiscard]] Driver probe_driver(const Places& places);

class Nvml;

/// The addresses of all GPUs of this machine, in the order of the bus.
[[nodiscard]] std::vector<std::string> gpu_addresses(const Places& places, const Nvml& nvml);

/// The error in a record of /dev/kmsg, "3,812,5093242,-;NVRM: Xid (PCI:0000:c6:00): 79, pid=...".
/// Nothing if it has none.
[[nodiscard]] std::optional<Xid> parse_xid(std::string_view record);

}  // namespace regroup::health
