// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace regroup::bench {

/// A working torchrun.
struct Torchrun {
    std::vector<std::string> command;  ///< Without flags.
    std::string version;               ///< Of PyTorch: "2.14.1".
};

/// The torchrun of the current PyTorch (see tests/pytorch/setup.sh), otherwise Debian's, otherwise
/// nothing. Prints its version and settings to stdout, or that there is none.
[[nodiscard]] std::optional<Torchrun> find_torchrun();

/// A complete torchrun command: a job of `nodes` nodes ("2" or "1:2") with the daemon at `port`
/// of this machine, up to `restarts` restarts and a monitor interval of 0.1 s. With "1:2" it has
/// the shortest keep-alive and last-call timeouts.
[[nodiscard]] std::vector<std::string> torchrun_command(const Torchrun& torchrun,
                                                        const std::string& nodes, int workers,
                                                        int restarts, std::uint16_t port,
                                                        const std::string& log_dir,
                                                        const std::vector<std::string>& program);

/// mpirun with flags that allow any number of processes and any user. Prints a message and returns
/// nothing if there is none.
[[nodiscard]] std::optional<std::vector<std::string>> find_mpirun();

/// Builds a program in C in `folder`, and returns its command under mpirun, to which the program is
/// the last word. Prints a message and returns nothing if mpicc or mpirun is missing.
[[nodiscard]] std::optional<std::vector<std::string>> build_mpi_program(
    const std::filesystem::path& source, const std::string& folder);

}  // namespace regroup::bench
