// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "agent/health/facts.h"
#include "agent/health/places.h"

namespace regroup::health {

/// Limits of this process, and the space in /dev/shm. Microseconds: reads a few small files of the
/// kernel. Never fails: what cannot be read counts as good.
[[nodiscard]] Host probe_host(const Places& places);

/// `interface`: "eth0"; may be empty. Never fails: what cannot be read stays unset.
[[nodiscard]] Link probe_link(const Places& places, const std::string& interface);

/// True if this machine seems to have an NVIDIA driver.
[[nodiscard]] bool has_driver(const Places& places);

}  // namespace regroup::health
