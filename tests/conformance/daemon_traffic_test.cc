// SPDX-License-Identifier: Apache-2.0
//
// The traffic of a daemon with its nodes, and the limits of traffic and of the log.
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "daemon_harness.h"
#include "rendezvous/server/allowance.h"
#include "rendezvous/server/log_limiter.h"

namespace regroup::rendezvous {
namespace {

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

// ---- An allowance.

TEST(DaemonAllowance, BurstIsUsedUpAndComesBackWithTime) {
    Allowance allowance({1000, 10});
    Instant now = Instant{} + seconds(5);
    EXPECT_TRUE(allowance.take(600, now));
    EXPECT_FALSE(allowance.take(600, now));
    EXPECT_TRUE(allowance.take(400, now));
    EXPECT_FALSE(allowance.take(1, now));
    now += seconds(10);
    EXPECT_TRUE(allowance.take(100, now));
    EXPECT_FALSE(allowance.take(1, now));
    EXPECT_FALSE(allowance.is_full(now + seconds(99)));
    EXPECT_TRUE(allowance.is_full(now + seconds(100)));
    EXPECT_FALSE(allowance.take(1001, now + std::chrono::hours(9)));
    EXPECT_TRUE(allowance.take(1000, now + std::chrono::hours(9)));
    allowance.give_back(300);
    EXPECT_TRUE(allowance.take(300, now + std::chrono::hours(9)));
}

// ---- Lines of the log.

TEST(DaemonLogLimiter, FirstLinesOfEachKindAndAddressAreWrittenAndTheOthersCounted) {
    std::vector<std::string> lines;
    LogLimiter limiter([&](const std::string& line) { lines.push_back(line); });
    Instant now = Instant{} + seconds(5);
    for (int i = 0; i < 100; ++i) {
        limiter.log("refused", "10.0.0.4", "refused 10.0.0.4:" + std::to_string(i), now);
    }
    EXPECT_EQ(lines.size(), LogLimiter::kLinesMax);
    limiter.log("refused", "10.0.0.5", "refused 10.0.0.5:1", now);
    limiter.log("slow", "10.0.0.4", "slow 10.0.0.4:1", now);
    EXPECT_EQ(lines.size(), LogLimiter::kLinesMax + 2);
    limiter.sweep(now + LogLimiter::kWindow - milliseconds(1));
    EXPECT_EQ(lines.size(), LogLimiter::kLinesMax + 2);
    now += LogLimiter::kWindow;
    limiter.sweep(now);
    ASSERT_EQ(lines.size(), LogLimiter::kLinesMax + 3);
    EXPECT_THAT(lines.back(), HasSubstr("refused 10.0.0.4:99 (and 96 more like it from 10.0.0.4"));
    limiter.log("refused", "10.0.0.4", "refused again", now);
    EXPECT_EQ(lines.back(), "refused again");
}

TEST(DaemonLogLimiter, ManyAddressesTogetherAreLimitedToo) {
    std::size_t lines = 0;
    LogLimiter limiter([&](const std::string& /*line*/) { ++lines; });
    const Instant now = Instant{} + seconds(5);
    for (int i = 0; i < 100000; ++i) {
        limiter.log("refused", std::to_string(i), "refused", now);
    }
    EXPECT_LE(lines, LogLimiter::kCountsMax + LogLimiter::kLinesMax);
}

}  // namespace
}  // namespace regroup::rendezvous
