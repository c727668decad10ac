// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <vector>

#include "agent/health/facts.h"
#include "rendezvous/base/clock.h"

namespace regroup::health {

struct LoadLimits {
    Duration computing = std::chrono::milliseconds(1000);
    Duration copying = std::chrono::milliseconds(300);
};

/// Computes one matrix product over and over on each CPU that this process may use, on all of them
/// at the same time, and then copies memory with all of them. Uses the widest vector unit of the
/// CPUs, at most an eighth of the free memory, and a thread for each CPU. Returns after the sum of
/// the limits, or a bit later.
void probe_cpus(const LoadLimits& limits, Probed& result);

}  // namespace regroup::health
