// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/base/result.h"

namespace regroup::launcher {

/// A job for Slurm. Empty texts and zeros are left to the cluster's defaults.
struct SbatchJob {
    std::string name;
    std::uint32_t nodes_min = 1;
    std::uint32_t nodes_max = 1;
    std::string time;  ///< As for sbatch: minutes, HH:MM:SS, D-HH.
    std::string partition;
    std::string account;
    std::string gpus_per_node;         ///< As for sbatch: "8", "a100:8".
    std::uint32_t cpus_per_node = 0;   ///< 0: whole nodes.
    std::uint32_t save_seconds = 120;  ///< From SIGTERM to the time limit.
    std::vector<std::string> options;  ///< More options of sbatch: "--qos=high".
    std::string regroup = "regroup";   ///< The program on the nodes.
    std::vector<std::string> run;      ///< Words behind `regroup run`.
};

/// The script for sbatch: a launcher on each node, and a new start when they have left with their
/// state saved. All words arrive as they are. Errors: invalid_argument, one line, for a value with
/// a line break or another control character in an option of sbatch.
[[nodiscard]] Result<std::string> sbatch_script(const SbatchJob& job);

/// `word` as a POSIX shell reads it as one word; unchanged if that is safe.
[[nodiscard]] std::string shell_word(const std::string& word);

}  // namespace regroup::launcher
