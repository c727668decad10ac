// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "rendezvous/base/result.h"

namespace regroup::agent {

/// One allowed hardware thread and its location. All numbers are the kernel's, except for the
/// package.
struct Cpu {
    int id = 0;
    int core = 0;   ///< The lowest CPU of its physical core, allowed or not.
    int cache = 0;  ///< The lowest CPU that shares its last-level cache; without one, of its node.
    int numa_node = 0;  ///< Its lowest NUMA node.
    int package = 0;    ///< Counted from 0 in the order of the machine.

    bool operator==(const Cpu&) const = default;
};

/// The hardware threads that this process may use: those of the machine within the affinity mask
/// (cpuset, taskset, scheduler). A value; loading takes a few milliseconds.
struct Topology {
    std::vector<Cpu> cpus;  ///< Ascending by id; never empty once loaded.

    /// The present machine. Errors: system, when hwloc or the kernel refuses. Replaces the
    /// environment during the call, because of hwloc: call it on the main thread before others
    /// start.
    static Result<Topology> load();

    /// A machine in hwloc's synthetic notation, such as "package:2 numa:2 core:4 pu:2".
    /// `allowed`: the allowed CPUs; empty: all. Errors: invalid_argument.
    static Result<Topology> from_synthetic(const std::string& description,
                                           const std::vector<int>& allowed = {});

    /// A machine as `lstopo --of xml` describes it. Errors: invalid_argument.
    static Result<Topology> from_xml(const std::string& xml, const std::vector<int>& allowed = {});
};

}  // namespace regroup::agent
