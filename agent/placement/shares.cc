// SPDX-License-Identifier: Apache-2.0
#include "agent/placement/shares.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

namespace regroup::agent {
namespace {

/// Each rank takes the next cores of its node. Nothing if a node has too few.
std::optional<std::vector<Cores>> deal_on(const Cores& cores, int core_count,
                                          const std::vector<int>& nodes) {
    std::map<int, Cores> left;
    for (const Core& core : cores) {
        left[core.numa_node].push_back(core);
    }
    std::vector<Cores> hands;
    for (const int node : nodes) {
        Cores& here = left[node];
        if (static_cast<int>(here.size()) < core_count) {
            return std::nullopt;
        }
        hands.emplace_back(here.begin(), here.begin() + core_count);
        here.erase(here.begin(), here.begin() + core_count);
    }
    return hands;
}

/// The node of each rank if each node takes as many ranks as it has room for.
std::vector<int> fill(const Cores& cores, int rank_count, int core_count) {
    std::vector<int> nodes;
    for (const int node : numa_nodes_of(cores)) {
        const int room = count_on(cores, node) / core_count;
        const int left = rank_count - static_cast<int>(nodes.size());
        nodes.insert(nodes.end(), static_cast<std::size_t>(std::min(room, left)), node);
    }
    return nodes;
}

}  // namespace

Cores group_cores(const std::vector<Cpu>& cpus) {
    std::map<std::pair<int, int>, Core> by_place;
    for (const Cpu& cpu : cpus) {
        Core& core = by_place[{cpu.numa_node, cpu.core}];
        core.id = cpu.core;
        core.numa_node = cpu.numa_node;
        core.cpus.push_back(cpu.id);
    }
    Cores cores;
    for (auto& [place, core] : by_place) {
        std::sort(core.cpus.begin(), core.cpus.end());
        cores.push_back(std::move(core));
    }
    return cores;
}

std::vector<int> numa_nodes_of(const Cores& cores) {
    std::vector<int> nodes;
    for (const Core& core : cores) {
        if (nodes.empty() || nodes.back() != core.numa_node) {
            nodes.push_back(core.numa_node);
        }
    }
    return nodes;
}

int count_on(const Cores& cores, int numa_node) {
    return static_cast<int>(std::count_if(
        cores.begin(), cores.end(), [&](const Core& core) { return core.numa_node == numa_node; }));
}

Cores even_run(const Cores& cores, int position, int count) {
    const int total = static_cast<int>(cores.size());
    const int begin = position * (total / count) + std::min(position, total % count);
    const int end = begin + total / count + (position < total % count ? 1 : 0);
    return {cores.begin() + begin, cores.begin() + end};
}

std::vector<int> spread(const std::vector<int>& nodes, int rank_count) {
    std::vector<int> spread_nodes;
    const int node_count = static_cast<int>(nodes.size());
    for (int rank = 0; rank < rank_count; ++rank) {
        const std::int64_t place = std::int64_t{rank} * node_count / rank_count;
        spread_nodes.push_back(nodes[static_cast<std::size_t>(place)]);
    }
    return spread_nodes;
}

Dealt deal(const Cores& cores, int rank_count, int core_count, const std::vector<int>& wanted) {
    ENSURE(core_count >= 1);
    ENSURE(std::int64_t{rank_count} * core_count <= static_cast<std::int64_t>(cores.size()));
    if (!wanted.empty()) {
        if (auto hands = deal_on(cores, core_count, wanted)) {
            return {*std::move(hands), true};
        }
    }
    if (auto hands = deal_on(cores, core_count, spread(numa_nodes_of(cores), rank_count))) {
        return {*std::move(hands), false};
    }
    const std::vector<int> filled = fill(cores, rank_count, core_count);
    if (static_cast<int>(filled.size()) == rank_count) {
        return {*deal_on(cores, core_count, filled), false};
    }
    Dealt across;
    for (int rank = 0; rank < rank_count; ++rank) {
        const auto begin = cores.begin() + std::ptrdiff_t{rank} * core_count;
        across.hands.emplace_back(begin, begin + core_count);
    }
    return across;
}

}  // namespace regroup::agent
