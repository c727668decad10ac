// SPDX-License-Identifier: Apache-2.0
// Programs of this folder start themselves again, once for each rank.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <sys/types.h>
#include <vector>

namespace regroup::gpu {

/// What one rank did.
struct RankEnd {
    bool finished = false;  ///< False if it had to be killed at the limit.
    int signal = 0;         ///< By which it ended, if not ours.
    int code = 0;
    std::string output{};
};

/// Runs this program as `world_size` ranks with the arguments "--rank" `mode`, in an environment as
/// a launcher makes it, on as many GPUs as there are; ranks share if they are too few.
[[nodiscard]] std::vector<RankEnd> run_ranks(const std::string& mode, std::uint32_t world_size,
                                             int gpus, std::chrono::seconds limit);

/// The mode if this process is a rank, else "".
[[nodiscard]] std::string rank_mode(int argc, char** argv);

/// Milliseconds since some moment in the past.
[[nodiscard]] double now_ms();

/// Prints what there is of GPU and NCCL, and returns the number of GPUs; 0, with one line that says
/// why, if nothing can be run here.
[[nodiscard]] int introduce(const char* program);

}  // namespace regroup::gpu
