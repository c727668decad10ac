// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>

#include "daemon_harness.h"
#include "rendezvous/client/control_client.h"
#include "rendezvous/protocol/codec.h"
#include "rendezvous/protocol/framing.h"
#include "tests/support/matchers.h"
#include "tests/support/program.h"

namespace regroup::rendezvous {
namespace {

using std::chrono::milliseconds;
using testing::Listener;
using testing::unused_port;

/// The callbacks that a client has made.
struct Story {
    int ups = 0;
    int downs = 0;
    std::vector<FromDaemon> messages;
    std::vector<std::string> troubles;
    bool answered = false;

    ControlClient::Handlers handlers() {
        return {{[this] { ++ups; }, [this] { ++downs; },
                 [this](const std::string& reason, bool peer_answered) {
                     troubles.push_back(reason);
                     answered = peer_answered;
                 }},
                [this](FromDaemon message) { messages.push_back(std::move(message)); }};
    }
    template <class Message>
    [[nodiscard]] bool heard() const {
        return std::any_of(messages.begin(), messages.end(), [](const FromDaemon& message) {
            return std::holds_alternative<Message>(message);
        });
    }
    [[nodiscard]] int total() const {
        return ups + downs + static_cast<int>(messages.size() + troubles.size());
    }
};

class DaemonClient : public ::testing::Test {
   protected:
    Loop loop;
    Story story;
};

TEST_F(DaemonClient, EndpointIsWrittenAsHostAndPort) {
    EXPECT_EQ((Endpoint{"host0", 29400}.text()), "host0:29400");
    EXPECT_EQ((Endpoint{"::1", 29400}.text()), "[::1]:29400");
}

TEST_F(DaemonClient, ClientJoinsAndReceivesItsAssignment) {
    DaemonHost host(loop);
    ControlClient client(loop.io(), Endpoint{"127.0.0.1", host.port()}, story.handlers());
    client.start();
    ASSERT_TRUE(loop.until([&] { return story.ups == 1; }));
    EXPECT_EQ(client.peer(), "127.0.0.1:" + std::to_string(host.port()));
    EXPECT_EQ(client.local_address(), "127.0.0.1");
    client.send(join_of("job", "a", 1));
    EXPECT_TRUE(loop.until([&] { return story.heard<Assign>(); }));
    EXPECT_TRUE(story.troubles.empty());
}

TEST_F(DaemonClient, MessagesWithoutAConnectionAreDropped) {
    DaemonHost host(loop);
    ControlClient client(loop.io(), Endpoint{"127.0.0.1", host.port()}, story.handlers());
    client.send(join_of("job", "a", 1));
    client.start();
    ASSERT_TRUE(loop.until([&] { return story.ups == 1; }));
    loop.run_for(milliseconds(50));
    EXPECT_EQ(host.daemon().counters().messages_in, 0U);
}

TEST_F(DaemonClient, PeerThatClosesWithoutAnAnswerIsReportedOnce) {
    Listener listener(loop);
    ControlClient client(loop.io(), Endpoint{"127.0.0.1", listener.port()}, story.handlers());
    client.start();
    for (int i = 0; i < 3; ++i) {
        listener.accept().hang_up();
    }
    ASSERT_TRUE(loop.until([&] { return story.downs == 3; }));
    EXPECT_EQ(story.troubles.size(), 1U);
}

TEST_F(DaemonClient, DaemonThatAnsweredBeforeIsNotReported) {
    Listener listener(loop);
    ControlClient client(loop.io(), Endpoint{"127.0.0.1", listener.port()}, story.handlers());
    client.start();
    {
        Peer peer = listener.accept();
        ASSERT_TRUE(peer.send(protocol::make_frame(protocol::encode(FromDaemon(Alive{})))));
        ASSERT_TRUE(loop.until([&] { return story.heard<Alive>(); }));
    }
    listener.accept().hang_up();
    ASSERT_TRUE(loop.until([&] { return story.downs == 2; }));
    EXPECT_TRUE(story.troubles.empty()) << story.troubles[0];
}

TEST_F(DaemonClient, KnownDaemonIsRetriedWithinTheHeartbeatTimeout) {
    Listener listener(loop);
    const Duration timeout = milliseconds(400);
    ControlClient client(loop.io(), {Endpoint{"127.0.0.1", listener.port()}}, story.handlers(),
                         timeout);
    client.start();
    std::vector<Instant> tries;
    for (int i = 0; i < 12; ++i) {
        Peer peer = listener.accept();
        tries.push_back(SteadyClock().now());
    }
    // Without the limit the last pauses alone would take more than ten times the timeout.
    Duration shortest = Duration::max();
    for (std::size_t i = 8; i < tries.size(); ++i) {
        shortest = std::min(shortest, tries[i] - tries[i - 1]);
    }
    EXPECT_LT(shortest, timeout);
}

TEST_F(DaemonClient, ClientRetriesUntilADaemonAppears) {
    const std::uint16_t port = unused_port();
    ControlClient client(loop.io(), Endpoint{"127.0.0.1", port}, story.handlers());
    client.start();
    ASSERT_TRUE(loop.until([&] { return story.troubles.size() >= 3; }));
    EXPECT_EQ(story.troubles[0], "cannot connect to 127.0.0.1:" + std::to_string(port) +
                                     " (127.0.0.1: Connection refused)");
    EXPECT_FALSE(story.answered);
    EXPECT_EQ(story.ups, 0);
    DaemonHost host(loop, {}, port);
    EXPECT_TRUE(loop.until([&] { return story.ups == 1; }));
    EXPECT_EQ(story.downs, 0);
}

TEST_F(DaemonClient, ClientReconnectsToADaemonThatCameBack) {
    const std::uint16_t port = unused_port();
    auto host = std::make_unique<DaemonHost>(loop, DaemonLimits{}, port);
    ControlClient client(loop.io(), Endpoint{"127.0.0.1", port}, story.handlers());
    client.start();
    ASSERT_TRUE(loop.until([&] { return story.ups == 1; }));
    client.send(join_of("job", "a", 1));
    ASSERT_TRUE(loop.until([&] { return story.heard<Assign>(); }));
    host.reset();
    ASSERT_TRUE(loop.until([&] { return story.downs == 1 && !story.troubles.empty(); }));
    DaemonHost next(loop, {}, port);
    ASSERT_TRUE(loop.until([&] { return story.ups == 2; }));
    story.messages.clear();
    client.send(join_of("job", "a", 1));
    EXPECT_TRUE(loop.until([&] { return story.heard<Assign>(); }));
}

TEST_F(DaemonClient, DropOpensAnotherConnection) {
    DaemonHost host(loop);
    ControlClient client(loop.io(), Endpoint{"127.0.0.1", host.port()}, story.handlers());
    client.start();
    ASSERT_TRUE(loop.until([&] { return story.ups == 1; }));
    client.drop();
    EXPECT_TRUE(loop.until([&] { return story.downs == 1 && story.ups == 2; }));
    EXPECT_TRUE(story.troubles.empty()) << story.troubles[0];
}

// ---- Several endpoints.

TEST_F(DaemonClient, ClientContinuesWithTheNextEndpoint) {
    DaemonHost host(loop);
    const std::uint16_t nobody = unused_port();
    ControlClient client(loop.io(),
                         std::vector<Endpoint>{{"127.0.0.1", nobody}, {"127.0.0.1", host.port()}},
                         story.handlers());
    client.start();
    ASSERT_TRUE(loop.until([&] { return story.ups == 1; }));
    EXPECT_EQ(client.peer(), "127.0.0.1:" + std::to_string(host.port()));
    ASSERT_EQ(story.troubles.size(), 1U);
    EXPECT_THAT(story.troubles[0], HasSubstr("127.0.0.1:" + std::to_string(nobody)));
}

TEST_F(DaemonClient, ClientFollowsElsewhereWithoutPassingItOn) {
    DaemonHost leader(loop);
    Listener follower(loop);
    const std::string leads_at = "127.0.0.1:" + std::to_string(leader.port());
    ControlClient client(loop.io(), Endpoint{"127.0.0.1", follower.port()}, story.handlers());
    client.start();
    Peer peer = follower.accept();
    ASSERT_TRUE(loop.until([&] { return story.ups == 1; }));
    ASSERT_TRUE(peer.send(protocol::make_frame(protocol::encode(Elsewhere{leads_at}))));
    ASSERT_TRUE(loop.until([&] { return story.ups == 2; }));
    EXPECT_EQ(client.peer(), leads_at);
    EXPECT_EQ(story.downs, 1);
    EXPECT_FALSE(story.heard<Elsewhere>());
    ASSERT_EQ(story.troubles.size(), 1U);
    EXPECT_EQ(story.troubles[0], "the daemon at 127.0.0.1:" + std::to_string(follower.port()) +
                                     " does not lead; it names " + leads_at);
    client.send(join_of("job", "a", 1));
    EXPECT_TRUE(loop.until([&] { return story.heard<Assign>(); }));
}

// ---- Names.

TEST_F(DaemonClient, LocalhostIsTriedWithIPv4AndIPv6) {
    DaemonHost host(loop);
    ControlClient client(loop.io(), Endpoint{"localhost", host.port()}, story.handlers());
    client.start();
    EXPECT_TRUE(loop.until([&] { return story.ups == 1; }));

    Story other;
    const std::uint16_t nobody = unused_port();
    ControlClient lost(loop.io(), Endpoint{"localhost", nobody}, other.handlers());
    lost.start();
    ASSERT_TRUE(loop.until([&] { return !other.troubles.empty(); }));
    EXPECT_THAT(other.troubles[0], saying("cannot connect to localhost:" + std::to_string(nobody),
                                          "127.0.0.1: Connection refused; ::1: "));
}

TEST_F(DaemonClient, NamesAreResolved) {
    DaemonHost host(loop);
    // Capitals, so that the client does not use its special case for "localhost".
    ControlClient client(loop.io(), Endpoint{"LOCALHOST", host.port()}, story.handlers());
    client.start();
    EXPECT_TRUE(loop.until([&] { return story.ups == 1; }));
    EXPECT_EQ(client.peer(), "127.0.0.1:" + std::to_string(host.port()));
}

TEST_F(DaemonClient, NameThatDoesNotResolveIsNamed) {
    ControlClient client(loop.io(), Endpoint{"no such host", 29400}, story.handlers());
    client.start();
    ASSERT_TRUE(loop.until([&] { return !story.troubles.empty(); }));
    EXPECT_THAT(story.troubles[0], HasSubstr("cannot resolve no such host: "));
    EXPECT_FALSE(story.answered);
}

// ---- Peers that are no daemon.

TEST_F(DaemonClient, PeerThatSpeaksAnotherProtocolIsNamed) {
    Listener listener(loop);
    ControlClient client(loop.io(), Endpoint{"127.0.0.1", listener.port()}, story.handlers());
    client.start();
    Peer peer = listener.accept();
    peer.send("HTTP/1.1 400 Bad Request\r\n");
    ASSERT_TRUE(loop.until([&] { return !story.troubles.empty(); }));
    EXPECT_THAT(story.troubles[0],
                saying(client.peer() + ": ", "does not speak regroup's control protocol"));
    EXPECT_TRUE(story.answered);
    EXPECT_TRUE(peer.is_closed_by_peer());
}

TEST_F(DaemonClient, MessageThatIsMalformedIsNamed) {
    Listener listener(loop);
    ControlClient client(loop.io(), Endpoint{"127.0.0.1", listener.port()}, story.handlers());
    client.start();
    Peer peer = listener.accept();
    peer.send(protocol::make_frame(R"({"type":"assign"})"));
    ASSERT_TRUE(loop.until([&] { return !story.troubles.empty(); }));
    EXPECT_THAT(story.troubles[0], HasSubstr("field 'round' is missing"));
    EXPECT_TRUE(story.answered);
}

TEST_F(DaemonClient, MessageOfANewerDaemonIsIgnored) {
    Listener listener(loop);
    ControlClient client(loop.io(), Endpoint{"127.0.0.1", listener.port()}, story.handlers());
    client.start();
    Peer peer = listener.accept();
    peer.send(protocol::make_frame(R"({"type":"news","text":"hello"})"));
    peer.send(protocol::make_frame(protocol::encode(FromDaemon(Alive{RoundId{7}}))));
    ASSERT_TRUE(loop.until([&] { return !story.messages.empty(); }));
    EXPECT_EQ(std::get<Alive>(story.messages[0]).round, RoundId{7});
    EXPECT_TRUE(story.troubles.empty());
}

TEST_F(DaemonClient, PeerThatClosesWithoutAnAnswerIsNamedAndRetriedSlowly) {
    Listener listener(loop);
    ControlClient client(loop.io(), Endpoint{"127.0.0.1", listener.port()}, story.handlers());
    client.start();
    std::vector<Instant> times;
    for (int i = 0; i < 6; ++i) {
        listener.accept().hang_up();
        times.push_back(SteadyClock().now());
    }
    ASSERT_TRUE(loop.until([&] { return !story.troubles.empty(); }));
    EXPECT_THAT(story.troubles[0], HasSubstr("closed the connection without an answer"));
    // The pauses grow: five of them take longer than five times the longest first pause.
    EXPECT_GT(times.back() - times.front(), 5 * milliseconds(50));
}

TEST_F(DaemonClient, OverloadedDaemonIsRetriedSlowlyThoughItAnswers) {
    Listener listener(loop);
    ControlClient client(loop.io(), Endpoint{"127.0.0.1", listener.port()}, story.handlers());
    client.start();
    const auto answer = [&](const FromDaemon& message) {
        Peer peer = listener.accept();
        peer.send(protocol::make_frame(protocol::encode(message)));
        EXPECT_TRUE(loop.until([&] { return !story.messages.empty(); }));
        story.messages.clear();
    };
    answer(Alive{});  // It is known, and had room once.
    Instant last = SteadyClock().now();
    std::vector<Duration> pauses;
    for (int i = 0; i < 4; ++i) {
        answer(Refused{Errc::overloaded, "full"});
        const Instant now = SteadyClock().now();
        pauses.push_back(now - std::exchange(last, now));
    }
    EXPECT_TRUE(story.troubles.empty());
    // An answer would make the next pause the first one again, 50 ms at most.
    EXPECT_GT(pauses.back(), milliseconds(200));
}

TEST_F(DaemonClient, MessagesAreReadInAnySegmentation) {
    Listener listener(loop);
    ControlClient client(loop.io(), Endpoint{"127.0.0.1", listener.port()}, story.handlers());
    client.start();
    Peer peer = listener.accept();
    std::string stream;
    for (std::uint64_t i = 1; i <= 3; ++i) {
        stream += protocol::make_frame(protocol::encode(FromDaemon(Alive{RoundId{i}})));
    }
    for (const char byte : stream) {
        peer.send(std::string_view(&byte, 1));
        loop.run_for(milliseconds(0));
    }
    ASSERT_TRUE(loop.until([&] { return story.messages.size() == 3; }));
    EXPECT_EQ(std::get<Alive>(story.messages[2]).round, RoundId{3});
}

// ---- The end.

TEST_F(DaemonClient, StopSendsWhatIsQueuedAndCloses) {
    Listener listener(loop);
    ControlClient client(loop.io(), Endpoint{"127.0.0.1", listener.port()}, story.handlers());
    client.start();
    Peer peer = listener.accept();
    ASSERT_TRUE(loop.until([&] { return story.ups == 1; }));
    for (std::uint64_t i = 1; i <= 100; ++i) {
        client.send(running(RoundId{i}));
    }
    client.send(Leave{"SIGTERM"});
    bool done = false;
    client.stop(std::chrono::seconds(20), [&] { done = true; });
    for (std::uint64_t i = 1; i <= 100; ++i) {
        ASSERT_TRUE(peer.next_payload()) << i;
    }
    const auto last = peer.next_payload();
    ASSERT_TRUE(last);
    EXPECT_THAT(*last, HasSubstr("SIGTERM"));
    EXPECT_TRUE(peer.is_closed_by_peer());
    EXPECT_TRUE(loop.until([&] { return done; }));
    EXPECT_EQ(story.downs, 0);
}

TEST_F(DaemonClient, StopSendsWhatIsQueuedThoughThePeerAnswersMeanwhile) {
    Listener listener(loop);
    ControlClient client(loop.io(), Endpoint{"127.0.0.1", listener.port()}, story.handlers());
    client.start();
    Peer peer = listener.accept();
    ASSERT_TRUE(loop.until([&] { return story.ups == 1; }));
    // More than the kernel takes before the peer reads.
    Report report = running(RoundId{1});
    report.report.failure.emplace();
    report.report.failure->exit_code = 1;
    report.report.failure->last_output = std::string(protocol::kOutputBytesMax, '\x01');
    constexpr int kReports = 200;
    for (int i = 0; i < kReports; ++i) {
        client.send(report);
    }
    client.send(Leave{"SIGTERM"});
    client.stop(std::chrono::seconds(20), [] {});
    ASSERT_TRUE(peer.send(protocol::make_frame(protocol::encode(FromDaemon(Alive{RoundId{1}})))));
    loop.run_for(milliseconds(20));  // The client sees the answer.
    for (int i = 0; i < kReports; ++i) {
        ASSERT_TRUE(peer.next_payload()) << i;
    }
    const auto last = peer.next_payload();
    ASSERT_TRUE(last);
    EXPECT_THAT(*last, HasSubstr("SIGTERM"));
}

TEST_F(DaemonClient, StopIsBoundedByItsLimit) {
    Listener listener(loop);
    ControlClient client(loop.io(), Endpoint{"127.0.0.1", listener.port()}, story.handlers());
    client.start();
    Peer deaf = listener.accept();
    ASSERT_TRUE(loop.until([&] { return story.ups == 1; }));
    // More than the kernel takes, in no more frames than the client takes.
    Report report = running(RoundId{1});
    report.report.failure.emplace();
    report.report.failure->exit_code = 1;
    report.report.failure->last_output = std::string(protocol::kOutputBytesMax, '\x01');
    for (int i = 0; i < 200; ++i) {
        client.send(report);
    }
    bool done = false;
    client.stop(milliseconds(100), [&] { done = true; });
    EXPECT_TRUE(loop.until([&] { return done; }, std::chrono::seconds(5)));
}

TEST_F(DaemonClient, PeerThatDoesNotReadIsGivenUp) {
    Listener listener(loop);
    ControlClient client(loop.io(), Endpoint{"127.0.0.1", listener.port()}, story.handlers());
    client.start();
    Peer deaf = listener.accept();
    ASSERT_TRUE(loop.until([&] { return story.ups == 1; }));
    EXPECT_TRUE(loop.until([&] {
        client.send(join_of("job", std::string(200, 'n'), 1));
        return story.downs == 1;
    }));
}

TEST_F(DaemonClient, StopAtAnyMomentCallsBackAndNothingElse) {
    DaemonHost host(loop);
    for (int moment = 0; moment < 12; ++moment) {
        Story own;
        const bool somebody = moment % 2 == 0;
        const std::string name = moment % 3 == 0 ? "LOCALHOST" : "127.0.0.1";
        ControlClient client(loop.io(), Endpoint{name, somebody ? host.port() : unused_port()},
                             own.handlers());
        if (moment > 0) {
            client.start();
        }
        loop.run_for(milliseconds(moment / 3));
        const int before = own.total();
        bool done = false;
        client.stop(std::chrono::seconds(20), [&] { done = true; });
        EXPECT_TRUE(loop.until([&] { return done; })) << moment;
        loop.run_for(milliseconds(20));
        EXPECT_EQ(own.total(), before) << moment;
    }
}

TEST_F(DaemonClient, HandlersAreNotCalledAfterDestruction) {
    DaemonHost host(loop);
    for (int moment = 0; moment < 12; ++moment) {
        // Freed with the client: a late call would be seen by the address sanitizer.
        auto own = std::make_unique<Story>();
        const bool somebody = moment % 2 == 0;
        const std::string name = moment % 3 == 0 ? "LOCALHOST" : "127.0.0.1";
        auto client = std::make_unique<ControlClient>(
            loop.io(), Endpoint{name, somebody ? host.port() : unused_port()}, own->handlers());
        if (moment > 0) {
            client->start();
        }
        loop.run_for(milliseconds(moment / 3));
        client->send(join_of("job" + std::to_string(moment), "a", 1));
        client.reset();
        own.reset();
        loop.run_for(milliseconds(20));
    }
    EXPECT_TRUE(loop.until([&] { return host.daemon().sessions_count() == 0; }));
}

TEST_F(DaemonClient, HandlerMayDestroyTheClient) {
    DaemonHost host(loop);
    for (const std::string when : {"up", "down", "message", "trouble"}) {
        std::unique_ptr<ControlClient> client;
        bool destroyed = false;
        const auto destroy_at = [&](const std::string& now) {
            if (now == when) {
                client.reset();
                destroyed = true;
            }
        };
        const Endpoint endpoint{"127.0.0.1", when == "trouble" ? unused_port() : host.port()};
        client = std::make_unique<ControlClient>(
            loop.io(), endpoint,
            ControlClient::Handlers{
                {[&] {
                     destroy_at("up");
                     if (client) {
                         client->send(join_of("job" + when, "a", 1));
                     }
                 },
                 [&] { destroy_at("down"); },
                 [&](const std::string& /*reason*/, bool /*answered*/) { destroy_at("trouble"); }},
                [&](const FromDaemon& /*message*/) {
                    destroy_at("message");
                    if (client) {
                        client->drop();
                    }
                }});
        client->start();
        EXPECT_TRUE(loop.until([&] { return destroyed; })) << when;
        loop.run_for(milliseconds(20));
    }
}

TEST(DaemonClientLoop, PendingWorkEndsWithTheEventLoop) {
    Story story;
    auto loop = std::make_unique<Loop>();
    const std::uint16_t nobody = unused_port();
    {
        DaemonHost host(*loop);
        ControlClient connected(loop->io(), Endpoint{"127.0.0.1", host.port()}, story.handlers());
        ControlClient waiting(loop->io(), Endpoint{"127.0.0.1", nobody}, story.handlers());
        connected.start();
        waiting.start();
        ASSERT_TRUE(loop->until([&] { return story.ups == 1 && !story.troubles.empty(); }));
        connected.send(join_of("job", "a", 2));
    }
    loop.reset();
}

}  // namespace
}  // namespace regroup::rendezvous
