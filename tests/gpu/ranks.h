// SPDX-License-Identifier: Apache-2.0
// The programs of this folder start themselves again, once for each rank.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <sys/types.h>
#include <vector>

namespace regroup::gpu {

/// The end of one rank.
struct RankEnd {
    bool finished = false;  ///< False if it had to be killed at the limit.
    int signal = 0;         ///< The signal that ended it, unless it was killed at the limit.
    int code = 0;
    std::string output{};
};

/// Runs this program as `world_size` ranks with the arguments "--rank" `mode`, with a launcher's
/// environment. Ranks share GPUs if there are too few.
[[nodiscard]] std::vector<RankEnd> run_ranks(const std::string& mode, std::uint32_t world_size,
                                             int gpus, std::chrono::seconds limit);

/// The mode if this process is a rank, else "".
[[nodiscard]] std::string rank_mode(int argc, char** argv);

/// Milliseconds since some moment in the past.
[[nodiscard]] double now_ms();

/// Prints the GPUs and the NCCL version, and returns the number of GPUs. Returns 0 after a line
/// that says why, if nothing can run here.
[[nodiscard]] int introduce(const char* program);

}  // namespace regroup::gpu
