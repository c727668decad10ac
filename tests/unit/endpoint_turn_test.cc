// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "rendezvous/client/endpoint.h"
#include "tests/support/failures.h"
#include "tests/support/matchers.h"

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

struct EndpointCase {
    const char* text;
    const char* host;
    int port;
};

TEST(Endpoint, WellFormedEndpointsAreAccepted) {
    for (const EndpointCase& good : {EndpointCase{"", "localhost", 77},
                                     {"  ", "localhost", 77},
                                     {"host0", "host0", 77},
                                     {" host0:1 ", "host0", 1},
                                     {"host-0.example_x.org:65535", "host-0.example_x.org", 65535},
                                     {"10.0.0.1:29400", "10.0.0.1", 29400},
                                     {"10.0.0.1:0", "10.0.0.1", 0},
                                     {"[::1]", "::1", 77},
                                     {"[::1]:29400", "::1", 29400},
                                     {"[fe80::1%eth0]:5", "fe80::1%eth0", 5},
                                     {"[2001:db8::7]:00080", "2001:db8::7", 80}}) {
        const Result<Endpoint> endpoint = parse_endpoint(good.text, 77, "--flag");
        ASSERT_TRUE(endpoint) << good.text << ": " << endpoint.error().detail;
        EXPECT_EQ(endpoint->host, good.host) << good.text;
        EXPECT_EQ(endpoint->port, good.port) << good.text;
    }
}

struct BadEndpoint {
    const char* text;
    const char* why;
};

TEST(Endpoint, MalformedEndpointsAreRefusedWithTheReason) {
    for (const BadEndpoint& bad : {BadEndpoint{"host:", "the port is missing"},
                                   {"[::1]:", "the port is missing"},
                                   {":29400", "the host is missing"},
                                   {"[]:29400", "the host is missing"},
                                   {"::1", "an IPv6 address needs brackets"},
                                   {"::1:29400", "an IPv6 address needs brackets"},
                                   {"[::1", "the bracket is not closed"},
                                   {"[::1]29400", "after the bracket"},
                                   {"host:http", "the port must be a number"},
                                   {"host:65536", "the port must be a number"},
                                   {"host:-1", "the port must be a number"},
                                   {"host:1 2", "the port must be a number"},
                                   {"http://host:29400", "it is no URL"},
                                   {"ho st:1", "'ho st' is no host name"},
                                   {"host/path", "is no host name"}}) {
        EXPECT_THAT(parse_endpoint(bad.text, 77, "--flag"),
                    fails(Errc::invalid_argument, bad.why, "'" + std::string(bad.text) + "'"))
            << bad.text;
    }
}

TEST(Endpoint, ListHasOneOrMoreEndpoints) {
    const auto two = parse_endpoints("a:1, b", 29400, "--flag");
    ASSERT_TRUE(two);
    ASSERT_EQ(two->size(), 2U);
    EXPECT_EQ(two->at(0), (Endpoint{"a", 1}));
    EXPECT_EQ(two->at(1), (Endpoint{"b", 29400}));
    EXPECT_EQ(parse_endpoints("", 29400, "--flag")->size(), 1U);
    EXPECT_FALSE(parse_endpoints("a:1,,b:2", 29400, "--flag"));
    EXPECT_FALSE(parse_endpoints("a:1,", 29400, "--flag"));
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
