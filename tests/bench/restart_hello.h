// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace regroup::bench {

/// The environment variable with the path of the gate's socket.
inline constexpr const char* kGateVariable = "RESTART_BENCH_GATE";

/// The report of a worker of the restart benchmark, in one packet.
struct RestartHello {
    std::int64_t started_ns = 0;  ///< CLOCK_MONOTONIC, as std::chrono::steady_clock.
    std::int32_t rank = 0;
    std::int32_t pid = 0;
};

}  // namespace regroup::bench
