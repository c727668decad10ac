// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace regroup::bench {

/// A torchrun that works.
struct Torchrun {
    std::vector<std::string> command;  ///< Ready to be given its flags.
    std::string version;               ///< Of PyTorch: "2.14.1".
};

/// That of the current PyTorch if it is there (see tests/pytorch/setup.sh), else Debian's, else
/// nothing. Says on stdout which one it is and how it is set, or that there is none.
[[nodiscard]] std::optional<Torchrun> find_torchrun();

/// A whole command of `torchrun`: a job of `nodes` nodes ("2" or "1:2") that meets at `port` of
/// this machine, restarts its workers up to `restarts` times, looks after them every 0.1 s and,
/// of "1:2", gives up a lost node and calls for the last time as soon as it can.
[[nodiscard]] std::vector<std::string> torchrun_command(const Torchrun& torchrun,
                                                        const std::string& nodes, int workers,
                                                        int restarts, std::uint16_t port,
                                                        const std::string& log_dir,
                                                        const std::vector<std::string>& program);

/// mpirun with the flags by which it starts any number of processes here, as anybody; nothing,
/// which it says, if there is none.
[[nodiscard]] std::optional<std::vector<std::string>> find_mpirun();

}  // namespace regroup::bench
