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

/// One rank that runs.
struct RunningRank {
    pid_t pid = -1;
    int output = -1;
    RankEnd end{};
};

/// A port of this machine that is free now.
[[nodiscard]] std::string free_port();
/// The variables that a launcher would set. Ranks share GPUs if there are too few.
[[nodiscard]] std::vector<std::string> environment_of(std::uint32_t rank, std::uint32_t world_size,
                                                      const std::string& port, int gpus);
/// Starts this program with the arguments "--rank" `mode`, and with `environment` in addition to
/// its own. Ends this program if that is impossible.
[[nodiscard]] RunningRank start_rank(const std::string& mode, std::vector<std::string> environment);
/// Waits for the ranks, and kills those that run at the limit.
[[nodiscard]] std::vector<RankEnd> await_ranks(std::vector<RunningRank> ranks,
                                               std::chrono::seconds limit);

/// Starts all ranks of a world, and waits for them.
[[nodiscard]] std::vector<RankEnd> run_ranks(const std::string& mode, std::uint32_t world_size,
                                             int gpus, std::chrono::seconds limit);

/// The mode if this process is a rank, else "".
[[nodiscard]] std::string rank_mode(int argc, char** argv);

/// Milliseconds since some moment in the past.
[[nodiscard]] double now_ms();

/// The exit status of a program that cannot run here.
inline constexpr int kSkipped = 77;

/// Prints the GPUs and the NCCL version, and returns the number of GPUs. Ends the program after a
/// line that says why, if it cannot run here: as a failure if there is a GPU.
[[nodiscard]] int introduce(const char* program);

}  // namespace regroup::gpu
