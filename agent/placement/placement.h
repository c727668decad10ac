// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/placement/gpus.h"
#include "agent/placement/topology.h"

namespace regroup::agent {

/// Which CPUs a worker is bound to (--numa-binding), by the NUMA node of its GPU, which is the one
/// with the index of its local rank, or the first of its own (gpus_per_rank). Without GPUs the
/// local ranks are dealt to the NUMA nodes that we may use in equal runs, in order: of 4 ranks on 2
/// nodes, ranks 0 and 1 go to the first.
enum class NumaBinding {
    none,
    node,    ///< All CPUs of the node.
    socket,  ///< All CPUs of all nodes of the node's package.
    /// The node's physical cores divided evenly among its GPUs (without GPUs: its ranks), in order;
    /// the first ones get one core more where it does not divide.
    exclusive,
    /// One of the groups of CPUs in the node that share a last-level cache: the largest first, then
    /// the lowest, by the GPU's place among the node's GPUs; from the start again when there are
    /// not enough. A node without such a cache is one group.
    core_complex,
};

/// How many physical cores each worker gets for itself (--cpus-per-rank), with all their hardware
/// threads that we may use; within the set of the NumaBinding where there is one.
struct CpusPerRank {
    /// 0, "auto": the cores divided evenly among the ranks; what remains is nobody's. With GPUs
    /// whose nodes are known, the cores of each GPU's node among the ranks there, equally many
    /// everywhere. More ranks than cores: nobody gets cores of their own.
    int core_count = 0;

    bool operator==(const CpusPerRank&) const = default;
};

/// The values of the two flags. Errors: invalid_argument, with the flag and what it takes.
Result<NumaBinding> parse_numa_binding(std::string_view text);
Result<CpusPerRank> parse_cpus_per_rank(std::string_view text);

struct PlacementRequest {
    int rank_count = 1;  ///< Local ranks; at least 1.
    NumaBinding numa_binding = NumaBinding::none;
    std::optional<CpusPerRank> cpus_per_rank;
    int gpus_per_rank = 1;  ///< Next to each other; the first of them is the one that counts.
};

/// Where one worker is to run.
struct RankPlacement {
    int local_rank = 0;
    std::string gpu;              ///< "2 (0000:3b:00.0)", if it has one.
    std::vector<int> cpus;        ///< Ascending; empty: not bound.
    std::vector<int> numa_nodes;  ///< Of these CPUs, ascending.
    /// What suits as OMP_NUM_THREADS: the physical cores in its set, divided among the ranks that
    /// share the set; at least 1.
    int thread_count = 1;

    bool operator==(const RankPlacement&) const = default;
};

struct Placement {
    std::vector<RankPlacement> ranks;  ///< By local rank.
    std::vector<std::string> notes;    ///< What a person should know, a sentence each.
};

/// Decides where the workers of this node run; a pure function. The sets of two ranks are disjoint
/// with `exclusive` and with cpus_per_rank, unless a note says that there were too few cores.
/// Errors: invalid_argument, with the flag that cannot be satisfied and why.
Result<Placement> plan_placement(const PlacementRequest& request, const Topology& topology,
                                 const Gpus& gpus);

/// For people (--report-bindings): a line for each rank, then the notes; each ends with a line
/// feed.
std::string binding_report(const Placement& placement);

/// As the kernel writes it: "0-3,8". `cpus` ascend.
std::string format_cpu_list(const std::vector<int>& cpus);

}  // namespace regroup::agent
