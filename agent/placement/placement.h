// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/placement/gpus.h"
#include "agent/placement/topology.h"

namespace regroup::agent {

/// The CPUs to which a worker is bound (--numa-binding), by the NUMA node of its GPU: the
/// GPU with the index of its local rank, or the first of its own GPUs (gpus_per_rank). Without GPUs
/// the allowed NUMA nodes get equal runs of local ranks, in order: of 4 ranks on 2 nodes, ranks 0
/// and 1 go to the first.
enum class NumaBinding {
    none,
    node,    ///< All CPUs of the node.
    socket,  ///< All CPUs of all nodes of the node's package.
    /// The physical cores of the node, divided evenly among its GPUs (without GPUs: its ranks), in
    /// order. If the division has a remainder, the first ones get one core more.
    exclusive,
    /// One of the node's groups of CPUs that share a last-level cache. The largest group comes
    /// first, then the lowest. The GPU's place among the node's GPUs selects the group, starting
    /// again after the last one. A node without such a cache is one group.
    core_complex,
};

/// The number of physical cores that each worker gets for itself (--cpus-per-rank), with all their
/// allowed hardware threads; within the set of the NumaBinding, if there is one.
struct CpusPerRank {
    /// 0 means "auto": the cores are divided evenly among the ranks, and the remainder is unused.
    /// If the nodes of the GPUs are known, the cores of each node are divided among the ranks of
    /// its GPUs, with the same number everywhere. With more ranks than cores, no rank gets cores of
    /// its own.
    int core_count = 0;

    bool operator==(const CpusPerRank&) const = default;
};

/// "node", "socket", "exclusive" or "core-complex"; else nothing.
[[nodiscard]] std::optional<NumaBinding> numa_binding_named(std::string_view name) noexcept;

struct PlacementRequest {
    int rank_count = 1;  ///< Local ranks; at least 1.
    NumaBinding numa_binding = NumaBinding::none;
    std::optional<CpusPerRank> cpus_per_rank;
    int gpus_per_rank = 1;  ///< Consecutive GPUs; the first one decides.
    /// How many CPUs all workers together may use at the same time, above 0; nothing: all. "auto"
    /// gives no more cores, and no rank gets more threads, than its part of them, rounded up.
    std::optional<double> cpu_quota = {};
};

/// The placement of one worker.
struct RankPlacement {
    int local_rank = 0;
    std::string gpu;              ///< "2 (0000:3b:00.0)", if it has one.
    std::vector<int> cpus;        ///< Ascending; empty: not bound.
    std::vector<int> numa_nodes;  ///< Of these CPUs, ascending.
    /// A fitting OMP_NUM_THREADS: the number of physical cores in its set, divided by the number of
    /// ranks that share the set; at least 1.
    int thread_count = 1;

    bool operator==(const RankPlacement&) const = default;
};

struct Placement {
    std::vector<RankPlacement> ranks;  ///< By local rank.
    std::vector<std::string> notes;    ///< Notices, one sentence each.
};

/// Decides where the workers of this node run. A pure function. With `exclusive` and cpus_per_rank
/// the sets of two ranks are disjoint, unless a note says that there were too few cores. Errors:
/// invalid_argument, with the flag that cannot be satisfied and the reason.
Result<Placement> plan_placement(const PlacementRequest& request, const Topology& topology,
                                 const Gpus& gpus);

/// The answer to --report-bindings: a line for each rank, then the notes. Each ends with a newline.
std::string binding_report(const Placement& placement);

/// "2.5", or "4" for a whole number.
std::string cpus_text(double cpus);

/// The list in the kernel's format: "0-3,8". `cpus` must be ascending.
std::string format_cpu_list(const std::vector<int>& cpus);

}  // namespace regroup::agent
