// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/subgroup_formation.h"

#include <regroup/error.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "worker_sdk/src/base/checksum.h"
#include "worker_sdk/src/cpu/group_formation.h"
#include "worker_sdk/src/cpu/solo_process_group.h"
#include "worker_sdk/src/group/refusing_process_group.h"

namespace regroup::cpu {
namespace {

/// The description of a rank that the other ranks get.
struct Entry {
    std::uint64_t agreement = 0;  ///< Hash of what the group is to be.
    std::uint64_t token = 0;
    std::array<char, 112> address{};  ///< Ends with zeroes; empty for ranks outside the sub-group.
    NodeOffer offer{};                ///< Of 0 ranks if it makes none.
};
static_assert(WireStruct<Entry>);

std::string title(const ProcessGroupOptions& options) {
    return "new_group \"" + options.name + "\"";
}

/// How many of `ranks` are on the node of `rank`.
std::uint32_t neighbours_of(std::uint32_t rank, const std::vector<Peer>& peers,
                            const std::vector<std::uint32_t>& ranks) {
    const std::uint64_t node = peers[rank].node;
    return static_cast<std::uint32_t>(
        node == 0 ? 1 : std::count_if(ranks.begin(), ranks.end(), [&](std::uint32_t other) {
            return peers[other].node == node;
        }));
}

std::vector<Entry> exchange(const Parent& parent, const Entry& mine,
                            const ProcessGroupOptions& options) try {
    std::vector<Entry> entries(parent.position.world_size);
    const auto view = [](const Entry* first, std::size_t count) {
        return TensorView(const_cast<Entry*>(first), count * sizeof(Entry), DType::uint8);
    };
    parent.group.all_gather(view(&mine, 1), view(entries.data(), entries.size())).wait();
    return entries;
} catch (const Error& error) {
    throw Error(error.code(), title(options) + ": " + error.what());
}

void check_agreement(const std::vector<Entry>& entries, const Entry& mine,
                     const ProcessGroupOptions& options) {
    for (std::size_t rank = 0; rank < entries.size(); ++rank) {
        if (entries[rank].agreement != mine.agreement) {
            throw Error(Errc::invalid_argument,
                        title(options) + ": the ranks do not agree: rank " + std::to_string(rank) +
                            " calls new_group with another name or other ranks; all ranks must "
                            "call it alike, in the same order");
        }
    }
}

}  // namespace

std::unique_ptr<ProcessGroup> form_subgroup(const Parent& parent,
                                            const std::vector<std::uint32_t>& ranks,
                                            const ProcessGroupOptions& options,
                                            FormationOptions formation) {
    const auto place = std::find(ranks.begin(), ranks.end(), parent.position.rank);
    const bool member = place != ranks.end();
    std::string words = std::to_string(parent.position.group) + "/" +
                        std::to_string(parent.division) + "/" + options.name;
    for (const std::uint32_t rank : ranks) {
        words += "/" + std::to_string(rank);
    }
    Entry mine{.agreement = checksum(words), .token = random_token()};
    UniqueFd listener;
    if (member && ranks.size() > 1) {
        listener = net::listen_on(parent.peers[parent.position.rank].address.with_port(0));
        const std::string text = net::bound_address(listener).text();
        text.copy(mine.address.data(), mine.address.size() - 1);
        mine.offer = make_offer(formation.node_ranks);
        if (const std::uint32_t neighbours =
                neighbours_of(parent.position.rank, parent.peers, ranks);
            neighbours > 1) {
            formation.share =
                std::make_shared<NodeShare>(make_share(neighbours, formation.node_ranks));
            mine.offer = formation.share->offer;
        }
    }
    const std::vector<Entry> entries = exchange(parent, mine, options);
    check_agreement(entries, mine, options);
    if (!member) {
        return std::make_unique<RefusingProcessGroup>("cpu", Device(), options.name,
                                                      parent.position.rank, ranks);
    }
    if (ranks.size() == 1) {
        return std::make_unique<SoloProcessGroup>(formation.siblings);
    }
    std::vector<Peer> peers;
    for (const std::uint32_t rank : ranks) {
        peers.push_back(make_peer(static_cast<std::uint32_t>(peers.size()),
                                  parent.peers[rank].world_rank,
                                  net::SocketAddress::parse(entries[rank].address.data()),
                                  entries[rank].token, parent.peers[rank].node));
        if (entries[rank].offer.node_ranks > 0) {
            peers.back().offer = entries[rank].offer;
        }
    }
    const GroupPosition position{.rank = static_cast<std::uint32_t>(place - ranks.begin()),
                                 .world_size = static_cast<std::uint32_t>(ranks.size()),
                                 .round = parent.position.round,
                                 .group = mine.agreement,
                                 .protection = parent.position.protection};
    auto mesh = std::make_unique<Mesh>(position, std::move(peers), std::move(listener));
    try {
        return std::make_unique<CpuProcessGroup>(std::move(mesh), options, formation);
    } catch (const Error& error) {
        throw Error(error.code(), title(options) + ": " + error.what());
    }
}

}  // namespace regroup::cpu
