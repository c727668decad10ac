// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace regroup::bench {

/// torchrun, if this machine has one that works, ready to be given its flags. Says on stdout which
/// one it is, or that there is none.
[[nodiscard]] std::optional<std::vector<std::string>> find_torchrun();

/// The flags of a job of `nodes` nodes that meets at `port` of this machine, restarts its workers
/// up to `restarts` times and looks after them every 0.1 s.
[[nodiscard]] std::vector<std::string> torchrun_flags(int nodes, int workers, int restarts,
                                                      std::uint16_t port,
                                                      const std::string& log_dir);

/// mpirun with the flags by which it starts any number of processes here, as anybody; nothing,
/// which it says, if there is none.
[[nodiscard]] std::optional<std::vector<std::string>> find_mpirun();

}  // namespace regroup::bench
