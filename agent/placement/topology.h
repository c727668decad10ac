// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "rendezvous/base/result.h"

namespace regroup::agent {

/// One hardware thread that may be used, and where it sits. All numbers are the kernel's, but for
/// the package's.
struct Cpu {
    int id = 0;
    int core = 0;  ///< The lowest CPU of its physical core, whether that may be used or not.
    int cache =
        0;  ///< The lowest CPU that shares its last-level cache; of its node if it has none.
    int numa_node = 0;  ///< The lowest node that it belongs to.
    int package = 0;    ///< Counted from 0 in the order of the machine.

    bool operator==(const Cpu&) const = default;
};

/// The hardware threads that this process may use: the machine's, within the affinity mask that a
/// cpuset, taskset or a scheduler has left us. A value; loading one costs a few milliseconds.
struct Topology {
    std::vector<Cpu> cpus;  ///< Ascending by id; never empty once loaded.

    /// The machine that we run on. Errors: system, when hwloc or the kernel refuses.
    /// Replaces the environment for hwloc's sake while it runs: for the main thread, before others.
    static Result<Topology> load();

    /// A machine in hwloc's synthetic notation, such as "package:2 numa:2 core:4 pu:2".
    /// `allowed`: the CPUs that may be used; empty: all. Errors: invalid_argument.
    static Result<Topology> from_synthetic(const std::string& description,
                                           const std::vector<int>& allowed = {});

    /// A machine as `lstopo --of xml` describes it. Errors: invalid_argument.
    static Result<Topology> from_xml(const std::string& xml, const std::vector<int>& allowed = {});
};

}  // namespace regroup::agent
