// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace regroup {

/// A variable's value; nothing if it is not set, or to nothing.
using Variables = std::function<std::optional<std::string>(const char* name)>;

/// Who this process is to the MPI launcher that started it.
struct MpiProcess {
    std::string launcher;  ///< "Open MPI", "Hydra", "Slurm".
    std::uint32_t rank = 0;
    std::uint32_t world_size = 1;
    std::uint32_t local_rank = 0;
    std::uint32_t local_world_size = 1;
    /// The node's number and how many there are; nothing where the launcher does not tell and the
    /// ranks do not seem to be numbered node by node.
    std::optional<std::uint32_t> group_rank = {};
    std::uint32_t group_world_size = 1;
    std::string job = {};  ///< The same on all ranks, another for each job; empty if unknown.
    std::string first_host = {};  ///< Where rank 0 is; empty if unknown.

    [[nodiscard]] bool on_one_node() const { return local_world_size == world_size; }
};

/// Reads what Open MPI's mpirun, MPICH's and Intel's Hydra, or Slurm's srun have set, in this
/// order, because the former are often started through the latter. Nothing under none of them.
/// Throws Error `invalid_argument` naming a variable that is missing or malformed.
[[nodiscard]] std::optional<MpiProcess> find_mpi_process(const Variables& variable);

/// A port from 20000 to 31999, out of which the kernel gives none by itself: the same for each rank
/// of `job`, and for two jobs at once the same with a chance of one in 12000.
[[nodiscard]] std::uint16_t port_of_job(std::string_view job);

/// The first name of a list as Slurm writes it: "n07" of "n[07-09,12],login".
[[nodiscard]] std::string first_host_of(std::string_view list);

/// The entry of node `index` in counts as Slurm writes them: "4(x2),3".
[[nodiscard]] std::optional<std::uint32_t> slurm_count(std::string_view counts,
                                                       std::uint32_t index);

}  // namespace regroup
