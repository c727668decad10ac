// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <gtest/gtest.h>

#include "rendezvous/client/endpoint.h"

namespace regroup::rendezvous {
namespace {

const Endpoint kA{"a", 1};
const Endpoint kB{"b", 2};
const Endpoint kC{"c", 3};

/// The hosts of the next `count` attempts, with '|' where there is a pause.
std::string hosts(EndpointTurn& turn, int count) {
    std::string text;
    for (int i = 0; i < count; ++i) {
        turn.advance();
        text += turn.current().host;
        if (turn.pause_is_due()) {
            turn.paused();
            text += '|';
        }
    }
    return text;
}

TEST(Endpoint, EndpointIsReadAsItIsWritten) {
    for (const Endpoint& endpoint :
         {Endpoint{"host0", 29400}, Endpoint{"::1", 1}, Endpoint{"10.0.0.1", 65535}}) {
        EXPECT_EQ(Endpoint::parse(endpoint.text()), endpoint);
    }
    for (const char* text : {"", "host", ":1", "host:", "host:0", "host:65536", "host:1x", "::1",
                             "::1:29400", "[]:1", "[[::1]:1", "[a]b]:1", "host:-1"}) {
        EXPECT_EQ(Endpoint::parse(text), std::nullopt) << text;
    }
}

TEST(EndpointTurn, OneEndpointIsTriedWithPauses) {
    EndpointTurn turn({kA});
    EXPECT_EQ(hosts(turn, 3), "a|a|a|");
}

TEST(EndpointTurn, SeveralEndpointsAreTriedInTurn) {
    EndpointTurn turn({kA, kB, kC});
    EXPECT_EQ(hosts(turn, 6), "abc|abc|");
}

TEST(EndpointTurn, LastGoodEndpointIsTriedFirstAfterAPause) {
    EndpointTurn turn({kA, kB});
    EXPECT_EQ(hosts(turn, 1), "a");
    turn.advance();
    turn.answered();
    EXPECT_TRUE(turn.pause_is_due());
    turn.paused();
    EXPECT_EQ(hosts(turn, 5), "bab|ab|");
}

TEST(EndpointTurn, NamedLeaderIsTriedAtOnce) {
    EndpointTurn turn({kA, kB});
    turn.advance();
    turn.named(kC);
    EXPECT_FALSE(turn.pause_is_due());
    EXPECT_EQ(hosts(turn, 2), "cb|");
}

TEST(EndpointTurn, DaemonsThatNameEachOtherAreFollowedAFewTimes) {
    EndpointTurn turn({kA});
    int attempts = 0;
    do {
        turn.advance();
        turn.named(turn.current() == kA ? kB : kA);
        ++attempts;
    } while (!turn.pause_is_due() && attempts < 100);
    EXPECT_LT(attempts, 10);
}

TEST(EndpointTurn, DaemonThatNamesItselfIsNotFollowed) {
    EndpointTurn turn({kA, kB});
    turn.advance();
    turn.named(kA);
    EXPECT_EQ(hosts(turn, 1), "b|");
}

}  // namespace
}  // namespace regroup::rendezvous
