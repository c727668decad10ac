// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/group_formation.h"

#include <regroup/error.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "worker_sdk/src/base/checksum.h"
#include "worker_sdk/src/cpu/cpu_process_group.h"
#include "worker_sdk/src/cpu/mesh.h"
#include "worker_sdk/src/cpu/node_formation.h"
#include "worker_sdk/src/cpu/solo_process_group.h"
#include "worker_sdk/src/net/protection.h"
#include "worker_sdk/src/store/member_store.h"

namespace regroup::cpu {
namespace {

Peer parse_peer(std::uint32_t rank, const std::string& text) {
    std::istringstream words(text);
    std::string address;
    std::uint64_t token = 0;
    std::uint64_t node = 0;
    std::string offer;
    if (!(words >> address >> token >> node)) {
        throw Error(Errc::invalid_argument, "the store's entry for rank " + std::to_string(rank) +
                                                " is malformed: \"" + text + "\"");
    }
    Peer peer = make_peer(rank, rank, net::SocketAddress::parse(address), token, node);
    words >> offer;
    peer.offer = NodeOffer::parse(offer);
    return peer;
}

std::string address_key(std::uint32_t rank) {
    return "addr/" + std::to_string(rank);
}

/// Waits for every rank's address.
std::vector<Peer> gather_peers(MemberStore& store, const Context& context,
                               const ProcessGroupOptions& options, Instant deadline) {
    std::vector<std::string> keys;
    for (std::uint32_t rank = 0; rank < context.world_size; ++rank) {
        keys.push_back(address_key(rank));
    }
    try {
        store.wait(keys, std::max<Duration>(deadline - SteadyClock().now(), Duration::zero()));
    } catch (const Error& error) {
        if (error.code() != Errc::deadline_exceeded) {
            throw;
        }
        const std::string missing = store.missing(keys);
        if (!missing.empty()) {
            throw Error(Errc::deadline_exceeded, "of " + std::to_string(context.world_size) +
                                                     " ranks these have not come within " +
                                                     format_duration(options.timeout) + ": " +
                                                     missing);
        }
        // The last address arrived during the query.
    }
    std::vector<Peer> peers;
    for (const std::string& text : store.multi_get(keys)) {
        peers.push_back(parse_peer(static_cast<std::uint32_t>(peers.size()), text));
    }
    return peers;
}

std::unique_ptr<ProcessGroup> form_among(const Context& context,
                                         const ProcessGroupOptions& options) {
    const Instant deadline = after(SteadyClock().now(), options.timeout);
    MemberStore group_store = MemberStore::of_attempt(context, "pg/" + options.name);
    net::Protection protection = net::protection_of(context, "regroup cpu connections");

    const bool shares = context.cpu_transport != "tcp";
    UniqueFd listener = net::listen_on(net::own_address(context));
    // Make the share before the wait for the other ranks: most ranks arrive long before the last
    // one.
    const std::uint32_t neighbours =
        context.group_world_size <= 1 ? context.world_size : context.local_world_size;
    const auto share =
        shares && neighbours > 1
            ? std::make_shared<NodeShare>(make_share(neighbours, context.local_world_size))
            : nullptr;
    group_store.set(address_key(context.rank),
                    net::bound_address(listener).text() + " " + std::to_string(random_token()) +
                        " " + std::to_string(shares ? node_identity(context) : 0) + " " +
                        (share ? share->offer : make_offer(context.local_world_size)).text());
    std::vector<Peer> peers = gather_peers(group_store, context, options, deadline);

    const GroupPosition position{.rank = context.rank,
                                 .world_size = context.world_size,
                                 .round = context.round,
                                 .group = checksum(context.job + "/" + group_store.prefix()),
                                 .protection = std::move(protection)};
    auto mesh = std::make_unique<Mesh>(position, std::move(peers), std::move(listener));
    return std::make_unique<CpuProcessGroup>(
        std::move(mesh), options,
        FormationOptions{.deadline = deadline,
                         .must_share = context.cpu_transport == "shm",
                         .share = share,
                         .node_ranks = context.local_world_size,
                         .scope = ContextScope::of(context)});
}

}  // namespace

std::uint64_t random_token() {
    return security::random_number();
}

Peer make_peer(std::uint32_t rank, std::uint32_t world_rank, const net::SocketAddress& address,
               std::uint64_t token, std::uint64_t node) {
    const std::string known_as =
        rank == world_rank ? "" : "world rank " + std::to_string(world_rank) + ", ";
    return {.address = address,
            .token = token,
            .node = node,
            .world_rank = world_rank,
            .name = "rank " + std::to_string(rank) + " (" + known_as + address.text() + ")"};
}

std::unique_ptr<ProcessGroup> form_group(const Context& context,
                                         const ProcessGroupOptions& options) {
    if (context.cpu_transport != "auto" && context.cpu_transport != "tcp" &&
        context.cpu_transport != "shm") {
        throw Error(Errc::invalid_argument,
                    "the transport \"" + context.cpu_transport + "\" is none of auto, tcp, shm");
    }
    if (context.world_size == 1) {
        return std::make_unique<SoloProcessGroup>();
    }
    return form_among(context, options);
}

}  // namespace regroup::cpu
