// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "daemon_harness.h"

namespace regroup::rendezvous {
namespace {

using testing::DaemonHost;
using testing::join_of;
using testing::Loop;
using testing::Peer;

struct PerNode {
    double messages = 0;
    double bytes = 0;
};

/// The daemon's traffic for one rendezvous of `count` nodes.
PerNode rendezvous_of(std::uint32_t count) {
    Loop loop;
    DaemonHost host(loop);
    std::vector<Peer> peers;
    for (std::uint32_t i = 0; i < count; ++i) {
        Join join = join_of("20261121-100526-9f3c", "node" + std::to_string(1000 + i), count);
        join.policy.heartbeat_timeout = JobPolicy().heartbeat_timeout;
        join.offer.workers = 8;
        join.offer.other_addresses = {"192.168.100.101"};
        peers.emplace_back(loop, host.port());
        EXPECT_TRUE(peers.back().say(join));
    }
    for (Peer& peer : peers) {
        EXPECT_TRUE(peer.expect<Assign>());
    }
    const DaemonCounters traffic = host.daemon().counters();
    const auto per_node = [&](std::uint64_t in, std::uint64_t out) {
        return static_cast<double>(in + out) / count;
    };
    return {per_node(traffic.messages_in, traffic.messages_out),
            per_node(traffic.bytes_in, traffic.bytes_out)};
}

TEST(DaemonTraffic, RendezvousTrafficPerNodeIsConstant) {
    const PerNode two = rendezvous_of(2);
    for (const std::uint32_t count : {2U, 4U, 8U, 16U, 32U}) {
        const PerNode each = rendezvous_of(count);
        std::printf("%2u nodes: %.2f messages and %.0f bytes for each\n", count, each.messages,
                    each.bytes);
        EXPECT_LE(each.messages, 3.0);
        EXPECT_LE(each.bytes, 528.0);
        EXPECT_NEAR(each.messages, two.messages, 0.01);
        // Larger numbers have more digits; nothing else grows.
        EXPECT_NEAR(each.bytes, two.bytes, 16.0);
    }
}

}  // namespace
}  // namespace regroup::rendezvous
