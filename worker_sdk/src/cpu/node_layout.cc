// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/node_layout.h"

#include <algorithm>
#include <map>

namespace regroup::cpu {

std::uint32_t NodeLayout::lanes() const {
    std::size_t least = nodes.front().size();
    for (const std::vector<std::uint32_t>& ranks : nodes) {
        least = std::min(least, ranks.size());
    }
    return static_cast<std::uint32_t>(least);
}

std::vector<std::uint32_t> NodeLayout::lane(std::uint32_t place) const {
    std::vector<std::uint32_t> ranks;
    for (const std::vector<std::uint32_t>& node_ranks : nodes) {
        ranks.push_back(node_ranks[place]);
    }
    return ranks;
}

NodeLayout layout_of(const std::vector<Peer>& peers, std::uint32_t rank) {
    NodeLayout layout;
    std::map<std::uint64_t, std::uint32_t> places;  // by identity of the node
    for (std::uint32_t peer = 0; peer < peers.size(); ++peer) {
        if (peers[peer].node == 0) {
            return {};
        }
        const auto next = static_cast<std::uint32_t>(layout.nodes.size());
        const std::uint32_t node = places.try_emplace(peers[peer].node, next).first->second;
        if (node == next) {
            layout.nodes.emplace_back();
        }
        if (peer == rank) {
            layout.node = node;
            layout.local = static_cast<std::uint32_t>(layout.nodes[node].size());
        }
        layout.nodes[node].push_back(peer);
    }
    bool any_share = false;
    for (const std::vector<std::uint32_t>& ranks : layout.nodes) {
        if (ranks.size() < 2) {
            continue;
        }
        any_share = true;
        for (const std::uint32_t neighbour : ranks) {
            if (!peers[neighbour].offer || !peers[neighbour].offer->shares()) {
                return {};
            }
        }
    }
    return any_share ? layout : NodeLayout();
}

}  // namespace regroup::cpu
