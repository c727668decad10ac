// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>

#include "agent/health/facts.h"
#include "rendezvous/base/clock.h"

namespace regroup::health {

struct LoadLimits {
    Duration computing = std::chrono::milliseconds(1000);
    Duration copying = std::chrono::milliseconds(300);
};

/// Free bytes of the machine, or those that the memory cgroups of this process still allow, if they
/// are fewer. `root`: the folder with proc and all mount points.
[[nodiscard]] std::uint64_t memory_left(const std::filesystem::path& root = "/");

/// Computes one matrix product over and over on each CPU that this process may use, on all of them
/// at the same time, and then copies memory with all of them. Uses the widest vector unit of the
/// CPUs, at most an eighth of the free memory, and a thread for each CPU. Returns after the sum of
/// the limits, or a bit later.
void probe_cpus(const LoadLimits& limits, Probed& result);

}  // namespace regroup::health
