// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "agent/placement/topology.h"

namespace regroup::agent {

/// A physical core with its allowed hardware threads.
struct Core {
    int id = 0;  ///< The lowest CPU of the core; see Cpu::core.
    int numa_node = 0;
    std::vector<int> cpus;  ///< Ascending, at least one.
};

/// Ascending by NUMA node, and by id within one.
using Cores = std::vector<Core>;

/// The physical cores of these hardware threads.
Cores group_cores(const std::vector<Cpu>& cpus);

/// The NUMA nodes of `cores`, ascending, each once.
std::vector<int> numa_nodes_of(const Cores& cores);

/// How many of `cores` are on `numa_node`.
int count_on(const Cores& cores, int numa_node);

/// The `position`-th of `count` equal runs of consecutive cores. With a remainder, the first runs
/// have one core more. Some runs are empty if `count` exceeds the number of cores.
Cores even_run(const Cores& cores, int position, int count);

/// The node of each rank if the nodes get equal runs of ranks, in order.
std::vector<int> spread(const std::vector<int>& nodes, int rank_count);

/// The cores of each rank.
struct Dealt {
    std::vector<Cores> hands;  ///< One for each rank.
    bool as_wanted = false;    ///< Each rank is on its wanted node.
};

/// Gives `core_count` cores to each rank, no core twice. `wanted` has one NUMA node for each rank,
/// or is empty. Tries in this order: each rank on its wanted node; equal runs of ranks on the
/// nodes, in order; filling one node after the other; ranks across nodes. Requires enough cores.
Dealt deal(const Cores& cores, int rank_count, int core_count, const std::vector<int>& wanted);

}  // namespace regroup::agent
