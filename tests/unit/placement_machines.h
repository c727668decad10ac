// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "agent/placement/placement.h"

namespace regroup::agent {

/// Machines in hwloc's notation. The CPUs of a core have neighbouring numbers.
inline constexpr const char* kSmall = "package:1 numa:1 l3:1 core:2 pu:1";
inline constexpr const char* kFourNodes = "package:2 numa:2 l3:1 core:4 pu:2";  ///< 32 CPUs.
/// As kFourNodes, but the two CPUs of a core are 16 apart, as firmware often numbers them.
inline constexpr const char* kFourNodesInterleaved =
    "package:2 numa:2 l3:1 core:4 pu:2(indexes=0,16,1,17,2,18,3,19,4,20,5,21,6,22,7,23,8,24,9,25,"
    "10,26,11,27,12,28,13,29,14,30,15,31)";
/// Two groups of four cores share a cache each, in one node.
inline constexpr const char* kComplexes = "package:1 numa:1 l3:2 core:4 pu:1";

inline Topology machine(const std::string& description, const std::vector<int>& allowed = {}) {
    auto topology = Topology::from_synthetic(description, allowed);
    ENSURE(topology.has_value());
    return *std::move(topology);
}

/// GPUs on these nodes. A negative node is unknown to the firmware.
inline Gpus gpus_on(const std::vector<int>& numa_nodes) {
    Gpus gpus;
    for (const int node : numa_nodes) {
        const std::string bus = std::to_string(10 + gpus.list.size());
        gpus.list.push_back({.address = "0000:" + bus + ":00.0",
                             .uuid = "GPU-" + bus,
                             .model = "A",
                             .numa_node = std::max(node, 0),
                             .numa_node_known = node >= 0});
    }
    return gpus;
}

inline std::vector<int> range(int begin, int end) {
    std::vector<int> numbers;
    for (int number = begin; number < end; ++number) {
        numbers.push_back(number);
    }
    return numbers;
}

/// The CPU list of each rank, or only the text of the error.
inline std::vector<std::string> lists(const Result<Placement>& placement) {
    std::vector<std::string> lists;
    if (!placement) {
        EXPECT_EQ(placement.error().code, Errc::invalid_argument);
        return {placement.error().detail};
    }
    for (const RankPlacement& rank : placement->ranks) {
        lists.push_back(format_cpu_list(rank.cpus));
    }
    return lists;
}

inline std::vector<int> threads(const Placement& placement) {
    std::vector<int> counts;
    for (const RankPlacement& rank : placement.ranks) {
        counts.push_back(rank.thread_count);
    }
    return counts;
}

}  // namespace regroup::agent
