// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace regroup {

/// A variable's value; nullopt if it is not set or empty.
using Variables = std::function<std::optional<std::string>(const char* name)>;

/// The place of this process in the job of an MPI launcher.
struct MpiProcess {
    std::string launcher;  ///< "Open MPI", "Hydra", "Slurm".
    std::uint32_t rank = 0;
    std::uint32_t world_size = 1;
    std::uint32_t local_rank = 0;
    std::uint32_t local_world_size = 1;
    /// The node's number; nullopt if the launcher does not give it and the ranks are not numbered
    /// node by node.
    std::optional<std::uint32_t> group_rank = {};
    std::uint32_t group_world_size = 1;
    std::string job = {};  ///< The same on all ranks, different for each job; empty if unknown.
    std::string first_host = {};  ///< The host of rank 0; empty if unknown.

    [[nodiscard]] bool on_one_node() const { return local_world_size == world_size; }
};

/// Reads the variables of Open MPI's mpirun, MPICH's and Intel's Hydra, or Slurm's srun. The order
/// matters, because the former are often started through the latter. Returns nullopt under other
/// launchers. Throws Error `invalid_argument` naming a variable that is missing or malformed.
[[nodiscard]] std::optional<MpiProcess> find_mpi_process(const Variables& variable);

/// A port from 20000 to 31999, below the kernel's ephemeral ports. It is the same for each rank of
/// `job`; two jobs get the same port with a probability of 1 in 12000.
[[nodiscard]] std::uint16_t port_of_job(std::string_view job);

/// The first name of a list in Slurm's format: "n07" of "n[07-09,12],login".
[[nodiscard]] std::string first_host_of(std::string_view list);

/// The entry of node `index` in counts in Slurm's format: "4(x2),3".
[[nodiscard]] std::optional<std::uint32_t> slurm_count(std::string_view counts,
                                                       std::uint32_t index);

}  // namespace regroup
