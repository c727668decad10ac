// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

#include "agent/health/facts.h"
#include "agent/health/places.h"

namespace regroup::health {

/// Limits of this process, and space. Microseconds: reads a few small files of the kernel.
/// `log_folder`: where the output of the workers goes; empty: nowhere. Never fails: what cannot be
/// read counts as good.
[[nodiscard]] Host probe_host(const Places& places, const std::filesystem::path& log_folder);

/// `interface`: "eth0"; may be empty. Never fails: what cannot be read stays unset.
[[nodiscard]] Link probe_link(const Places& places, const std::string& interface);

/// True if this machine seems to have an NVIDIA driver.
[[nodiscard]] bool has_driver(const Places& places);

}  // namespace regroup::health
