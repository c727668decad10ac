// SPDX-License-Identifier: Apache-2.0
// Addresses, and the peers that an acceptor accepts.
#include <regroup/error.h>

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/program.h"
#include "worker_sdk/src/cpu/acceptor.h"
#include "worker_sdk/src/cpu/outbound.h"

namespace regroup::cpu {
namespace {

constexpr Duration kPatience = std::chrono::seconds(60);

TEST(SocketAddress, AddressIsReadAsWritten) {
    for (const std::string text :
         {"127.0.0.1:80", "10.1.2.3:65535", "[::1]:4711", "[fe80::1%2]:1"}) {
        EXPECT_EQ(net::SocketAddress::parse(text).text(), text);
    }
}

TEST(SocketAddress, InvalidAddressIsRefused) {
    for (const std::string text : {"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:8x",
                                   "host:80", "[::1]", "::1:80", "[::1:80"}) {
        EXPECT_THROW((void)net::SocketAddress::parse(text), Error) << text;
    }
}

TEST(LocalAddress, AddressIsTheOneOfTheRouteToTheHost) {
    EXPECT_EQ(net::local_address_towards("127.0.0.1", 80).text(), "127.0.0.1:0");
    EXPECT_EQ(net::local_address_towards("", 0).text(), "127.0.0.1:0");
    EXPECT_THROW((void)net::local_address_towards("no such host", 80), Error);
}

/// An acceptor of rank 1 in a world of 3, and its callers.
class Door : public ::testing::Test {
   protected:
    Door() : Door(net::listen_on(net::SocketAddress::parse("127.0.0.1:0"))) {}

    /// True if the caller with this Hello is accepted.
    bool lets_in(const Hello& hello) {
        Outbound caller(peer, hello);
        const Instant deadline = after(SteadyClock().now(), kPatience);
        while (!caller.ready() && !caller.ended() && SteadyClock().now() < deadline) {
            turn(caller, deadline);
        }
        EXPECT_TRUE(caller.ready() || caller.ended());
        return caller.ready();
    }

    void turn(Outbound& caller, Instant until) {
        net::PollSet poll;
        acceptor.watch(poll);
        caller.watch(poll);
        poll.wait(until);
        for (Acceptor::Accepted& accepted : acceptor.progress(SteadyClock().now())) {
            welcome(accepted.stream, right.target);
            let_in.push_back(std::move(accepted));
        }
        caller.progress();
    }

    const Hello right = {.kind = ChannelKind::message,
                         .source = 2,
                         .target = 1,
                         .round = 7,
                         .group = 1234,
                         .token = 5678};
    Peer peer;
    Acceptor acceptor;
    std::vector<Acceptor::Accepted> let_in;

   private:
    explicit Door(net::Descriptor listener)
        : peer{.address = net::bound_address(listener), .name = "rank 1"},
          acceptor(std::move(listener), right, 3) {}
};

TEST_F(Door, RanksOfTheGroupAreAccepted) {
    EXPECT_TRUE(lets_in(right));
    ASSERT_EQ(let_in.size(), 1U);
    EXPECT_EQ(let_in[0].source, 2U);
    EXPECT_EQ(let_in[0].kind, ChannelKind::message);
    Hello other_kind = right;
    other_kind.kind = ChannelKind::collective;
    EXPECT_TRUE(lets_in(other_kind));
    Hello other_rank = right;
    other_rank.source = 0;
    EXPECT_TRUE(lets_in(other_rank));
}

TEST_F(Door, StrangersAreRefused) {
    const std::vector<std::function<void(Hello&)>> wrong = {
        [](Hello& hello) { hello.magic = 0x20544547; },  // "GET "
        [](Hello& hello) {
            hello.kind = static_cast<ChannelKind>(9); /* NOLINT: nonsense on purpose */
        },
        [](Hello& hello) { hello.source = 1; },  // Ourselves.
        [](Hello& hello) { hello.source = 3; },  // Beyond the world.
        [](Hello& hello) { hello.target = 0; },
        [](Hello& hello) { hello.round = 6; },
        [](Hello& hello) { hello.group = 0; },
        [](Hello& hello) { hello.token = 0; },
    };
    for (const auto& spoil : wrong) {
        Hello hello = right;
        spoil(hello);
        EXPECT_FALSE(lets_in(hello));
    }
    EXPECT_TRUE(let_in.empty());
    EXPECT_TRUE(lets_in(right));
    EXPECT_FALSE(lets_in(right));  // One of each.
}

TEST_F(Door, SilentStrangersDoNotBlockTheDoor) {
    std::vector<net::Descriptor> strangers;
    for (int i = 0; i < 10; ++i) {
        strangers.push_back(net::begin_connect(peer.address));
    }
    EXPECT_TRUE(lets_in(right));
    // The acceptor disconnects them at their deadline.
    EXPECT_LT(acceptor.next_deadline(), Instant::max());
    EXPECT_TRUE(acceptor.progress(acceptor.next_deadline() + kPatience).empty());
    EXPECT_EQ(acceptor.next_deadline(), Instant::max());
}

TEST(Outbound, FailedConnectionHasAReason) {
    const std::string closed = "127.0.0.1:" + std::to_string(testing::unused_port());
    const Peer peer{.address = net::SocketAddress::parse(closed), .name = "rank 1"};
    Outbound caller(peer, Hello{});
    const Instant deadline = after(SteadyClock().now(), kPatience);
    while (!caller.ended() && SteadyClock().now() < deadline) {
        net::PollSet poll;
        caller.watch(poll);
        poll.wait(deadline);
        caller.progress();
    }
    EXPECT_EQ(caller.ending().find("cannot be reached"), 0U) << caller.ending();
}

}  // namespace
}  // namespace regroup::cpu
