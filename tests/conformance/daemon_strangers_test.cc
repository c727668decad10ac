// SPDX-License-Identifier: Apache-2.0
//
// Invalid input is refused with a reason or disconnected, and two agents of another job do not
// notice.
#include <fstream>
#include <memory>
#include <sys/resource.h>
#include <unistd.h>
#include <vector>

#include "daemon_harness.h"
#include "rendezvous/protocol/codec.h"
#include "tests/support/matchers.h"
#include "tests/support/words.h"

namespace regroup::rendezvous {
namespace {

using std::chrono::milliseconds;

std::string frame(std::string_view payload) {
    return protocol::make_frame(payload);
}
std::string frame(const FromAgent& message) {
    return frame(protocol::encode(message));
}

class DaemonStrangers : public ::testing::Test {
   protected:
    explicit DaemonStrangers(const DaemonLimits& limits = {})
        : host(loop, limits), a(loop, host.port()), b(loop, host.port()) {
        a.say(join_of("healthy", "a", 2));
        b.say(join_of("healthy", "b", 2));
        for (Peer* peer : {&a, &b}) {
            if (const auto assign = peer->expect<Assign>()) {
                round = assign->assignment.round;
            }
        }
    }

    void expect_healthy() {
        for (Peer* peer : {&a, &b}) {
            EXPECT_TRUE(peer->say(running(round)));
            const auto alive = peer->expect<Alive>();
            ASSERT_TRUE(alive);
            EXPECT_EQ(alive->round, round);
        }
    }

    /// `bytes` on a connection of their own are refused with `reason`, then it is closed.
    void expect_refused(const std::string& bytes, const std::string& reason) {
        SCOPED_TRACE(reason);
        Peer stranger(loop, host.port());
        EXPECT_TRUE(stranger.send(bytes));
        const auto refused = stranger.expect<Refused>();
        ASSERT_TRUE(refused);
        EXPECT_EQ(refused->code, Errc::invalid_argument);
        EXPECT_THAT(describe(refused->reason), HasSubstr(reason));
        EXPECT_TRUE(stranger.is_closed_by_peer());
        EXPECT_TRUE(host.has_logged("refused 127.0.0.1:"));
        expect_healthy();
    }

    std::size_t sessions() { return host.daemon().sessions_count(); }

    Loop loop;
    DaemonHost host;
    Peer a;
    Peer b;
    RoundId round = RoundId::none;
};

TEST_F(DaemonStrangers, MalformedFramesAreRefusedWithTheReason) {
    expect_refused(frame("{\"type\":"), "not JSON");
    expect_refused(frame(""), "not JSON");
    expect_refused(frame("[1,2]"), "not a JSON object");
    expect_refused(frame(std::string(200000, '[')), "nested more than 16 deep");
    expect_refused(frame(R"({"type":"hello"})"), "unknown type 'hello'");
    expect_refused(frame(R"({"type":"alive","round":1})"), "unknown type 'alive'");
    expect_refused(frame(R"({"type":"join","protocol":1,"node":"n"})"), "field 'job' is missing");
    expect_refused(frame(R"({"type":"join","protocol":9})"), "the agent speaks version 9");
}

TEST_F(DaemonStrangers, OtherProtocolsAreRefused) {
    expect_refused("SSH-2.0-OpenSSH_9.2\r\n", "does not speak regroup's control protocol");
    expect_refused(std::string(100000, '\xFF'), "exceeds the limit");
}

TEST_F(DaemonStrangers, FirstMessageMustBeAJoin) {
    expect_refused(frame(running(RoundId{1})), "the first message must be a join");
    expect_refused(frame(Leave{"no"}), "the first message must be a join");
}

TEST_F(DaemonStrangers, ConnectionBelongsToOneNodeOfOneJob) {
    expect_refused(frame(join_of("mine", "x", 2)) + frame(join_of("mine", "y", 2)),
                   "a connection belongs to one node of one job");
    expect_refused(frame(join_of("mine2", "x", 2)) + frame(join_of("healthy", "x", 2)),
                   "a connection belongs to one node of one job");
}

TEST_F(DaemonStrangers, MalformedFrameOfAJoinedNodeIsRefusedToo) {
    Peer stranger(loop, host.port());
    stranger.say(join_of("other", "x", 1));
    ASSERT_TRUE(stranger.expect<Assign>());
    stranger.send(frame("nonsense"));
    EXPECT_TRUE(stranger.expect<Refused>());
    EXPECT_TRUE(stranger.is_closed_by_peer());
    expect_healthy();
}

TEST_F(DaemonStrangers, TruncatedFrameEndsWithItsConnection) {
    for (const std::size_t length : {1U, 3U, 4U, 50U}) {
        Peer stranger(loop, host.port());
        stranger.send(frame(join_of("other", "x", 1)).substr(0, length));
        ASSERT_TRUE(loop.until([&] { return sessions() == 3; }));
        stranger.hang_up();
        EXPECT_TRUE(loop.until([&] { return sessions() == 2; }));
    }
    expect_healthy();
}

TEST_F(DaemonStrangers, ConnectionResetHarmsNoOtherPeer) {
    Peer stranger(loop, host.port());
    stranger.say(join_of("other", "x", 1));
    // An answer that nobody has read turns the close into a reset.
    ASSERT_TRUE(loop.until([&] { return host.daemon().counters().messages_out >= 3; }));
    loop.run_for(milliseconds(10));
    stranger.hang_up();
    EXPECT_TRUE(loop.until([&] { return sessions() == 2; }));
    expect_healthy();
}

std::size_t elastic_bytes() {
    std::ifstream file("/proc/self/statm");
    std::size_t total = 0;
    std::size_t elastic = 0;
    file >> total >> elastic;
    return elastic * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

TEST_F(DaemonStrangers, BytesAfterARefusalAreDiscarded) {
    constexpr std::size_t kFlood = std::size_t{96} << 20U;
    Peer stranger(loop, host.port());
    stranger.send(frame("nonsense"));
    ASSERT_TRUE(stranger.expect<Refused>());
    const std::size_t before = elastic_bytes();
    const std::string block(std::size_t{1} << 20U, 'x');
    for (std::size_t sent = 0; sent < kFlood; sent += block.size()) {
        ASSERT_TRUE(stranger.send(block));
    }
    EXPECT_LT(elastic_bytes(), before + kFlood / 2);
    expect_healthy();
}

// ---- Silence and bounds.

class DaemonBounds : public DaemonStrangers {
   protected:
    DaemonBounds() : DaemonStrangers(small()) {}

    static DaemonLimits small() {
        DaemonLimits limits;
        limits.hello_limit = milliseconds(300);
        limits.outbox_frames_max = 8;
        limits.sessions_max = 4;
        limits.strangers_max = 8;
        limits.jobs_max = 2;
        return limits;
    }
};

TEST_F(DaemonBounds, SilentConnectionIsClosed) {
    Peer stranger(loop, host.port());
    EXPECT_TRUE(stranger.is_closed_by_peer());
    expect_healthy();
}

TEST_F(DaemonBounds, ConnectionWithHalfAFrameIsClosed) {
    Peer stranger(loop, host.port());
    stranger.send(frame(join_of("other", "x", 1)).substr(0, 60));
    EXPECT_TRUE(stranger.is_closed_by_peer());
    expect_healthy();
}

TEST_F(DaemonBounds, SlowConnectionWithoutAJoinIsClosed) {
    Peer stranger(loop, host.port());
    stranger.send(std::string("\0\3\0\0", 4));
    bool open = true;
    EXPECT_TRUE(loop.until([&] {
        open = open && stranger.send(" ") && !stranger.is_closed_by_peer(milliseconds(5));
        return !open;
    }));
    expect_healthy();
}

TEST_F(DaemonBounds, RefusedPeerThatDoesNotCloseIsDisconnected) {
    Peer stranger(loop, host.port());
    stranger.send("SSH-2.0-OpenSSH_9.2\r\n");
    ASSERT_TRUE(stranger.expect<Refused>());
    EXPECT_TRUE(loop.until([&] { return sessions() == 2; }));
    expect_healthy();
}

TEST_F(DaemonBounds, JoinedNodeThatFallsSilentIsClosed) {
    Peer stranger(loop, host.port());
    Join join = join_of("other", "x", 1);
    join.policy.heartbeat_timeout = milliseconds(100);
    stranger.say(join);
    ASSERT_TRUE(stranger.expect<Assign>());
    EXPECT_TRUE(stranger.is_closed_by_peer());
    EXPECT_TRUE(loop.until([&] { return sessions() == 2; }));
    expect_healthy();
}

// The verdict of its closed job, with the output of its worker, is a large answer.
std::string asks_for_much() {
    Report report = running(RoundId{1});
    report.report.state = NodeState::stopped;
    report.report.failure.emplace();
    report.report.failure->exit_code = 1;
    report.report.failure->last_output = std::string(protocol::kOutputBytesMax, '\x01');
    return frame(report);
}

TEST_F(DaemonBounds, PeerThatDoesNotReadIsDisconnected) {
    Peer stranger(loop, host.port(), 4096);
    stranger.say(join_of("other", "x", 1));
    const std::string ask = asks_for_much();
    EXPECT_TRUE(loop.until([&] {
        return host.has_logged("it does not read what it is sent") || !stranger.send(ask);
    }));
    EXPECT_TRUE(host.has_logged("it does not read what it is sent"));
    EXPECT_TRUE(loop.until([&] { return sessions() == 2; }));
    expect_healthy();
}

/// This process may open 400 files. Destroyed after the members of derived classes.
class FewDescriptors {
   protected:
    FewDescriptors() {
        ::getrlimit(RLIMIT_NOFILE, &before_);
        const rlimit few{400, before_.rlim_max};
        EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    }
    ~FewDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

   private:
    rlimit before_{};
};

class DaemonWithFewDescriptors : FewDescriptors, public DaemonStrangers {};

TEST_F(DaemonWithFewDescriptors, SilentConnectionsLeaveSomeForOthers) {
    std::vector<std::unique_ptr<Peer>> silent;
    for (int i = 0; i < 150; ++i) {
        silent.push_back(std::make_unique<Peer>(loop, host.port()));
    }
    EXPECT_TRUE(silent.back()->is_closed_by_peer()) << "its host has many";
    // The oldest makes room when it has been silent for some time.
    EXPECT_TRUE(loop.until([&] {
        Peer node(loop, host.port());
        node.say(join_of("other", "x", 1));
        const auto answer = node.next();
        return answer && std::holds_alternative<Assign>(*answer);
    }));
    EXPECT_LE(sessions(), 100U + 3U);
    expect_healthy();
}

class DaemonWithLittleMemory : public DaemonStrangers {
   protected:
    DaemonWithLittleMemory() : DaemonStrangers(little()) {}

    static DaemonLimits little() {
        DaemonLimits limits;
        limits.sessions_bytes_max = std::size_t{1} << 20U;
        return limits;
    }
};

TEST_F(DaemonWithLittleMemory, HalfMessagesOfManyConnectionsAreBounded) {
    // Each has said something before, so that it is no stranger.
    const std::string half = frame(std::string(protocol::kFrameBytesMax, ' ')).substr(0, 300000);
    std::vector<std::unique_ptr<Peer>> peers;
    for (int i = 0; i < 8; ++i) {
        const auto& peer = peers.emplace_back(std::make_unique<Peer>(loop, host.port()));
        peer->say(join_of("other " + std::to_string(i), "x", 1));
        ASSERT_TRUE(peer->expect<Assign>());
        peer->send(half);
    }
    EXPECT_TRUE(loop.until([&] { return sessions() <= 2 + 3; })) << "3 halves fit";
    expect_healthy();
}

TEST_F(DaemonWithLittleMemory, AnswersThatManyConnectionsDoNotReadAreBounded) {
    std::vector<std::unique_ptr<Peer>> peers;
    for (int i = 0; i < 4; ++i) {
        const auto& peer = peers.emplace_back(std::make_unique<Peer>(loop, host.port(), 4096));
        peer->say(join_of("other " + std::to_string(i), "x", 1));
    }
    const std::string ask = asks_for_much();
    EXPECT_TRUE(loop.until([&] {
        for (const auto& peer : peers) {
            peer->send(ask);
        }
        return sessions() < 6;
    }));
    EXPECT_FALSE(host.has_logged("it does not read what it is sent")) << "all its answers fit";
    expect_healthy();
}

TEST_F(DaemonBounds, FlushWaitsForThePeerAndStopHasALimit) {
    Peer stranger(loop, host.port(), 4096);
    stranger.say(join_of("other", "x", 1));
    ASSERT_TRUE(stranger.expect<Assign>());
    const std::string request = asks_for_much();
    // One at a time: more answers than fit the outbox would end the connection.
    const auto ask = [&] {
        const std::uint64_t heard = host.daemon().counters().messages_in;
        EXPECT_TRUE(stranger.send(request));
        EXPECT_TRUE(loop.until([&] { return host.daemon().counters().messages_in > heard; }));
    };
    // Until the daemon has output that the kernel does not accept.
    const auto is_stuck = [&] {
        constexpr std::chrono::seconds kPatience(1);  // No pause of the test's own.
        bool flushed = false;
        bool in_time = false;
        const Instant limit = SteadyClock().now() + kPatience;
        host.daemon().flush(kPatience, [&] {
            flushed = true;
            in_time = SteadyClock().now() < limit;
        });
        loop.until([&] { return flushed; });
        return !in_time;
    };
    ASSERT_TRUE(loop.until([&] {
        ask();
        return is_stuck();
    }));

    bool flushed = false;
    host.daemon().flush(std::chrono::seconds(20), [&] { flushed = true; });
    loop.run_for(milliseconds(20));
    EXPECT_FALSE(flushed);
    EXPECT_TRUE(loop.until([&] {
        stranger.is_closed_by_peer(milliseconds(1));  // Reads.
        return flushed;
    }));

    ASSERT_TRUE(loop.until([&] {
        ask();
        return is_stuck();
    }));
    bool done = false;
    host.daemon().stop("the operator", "maintenance", milliseconds(200), [&] { done = true; });
    EXPECT_TRUE(loop.until([&] { return done; }));
    EXPECT_TRUE(a.expect<Closed>());
    EXPECT_TRUE(b.expect<Closed>());
}

TEST_F(DaemonBounds, ConnectionBeyondTheLimitIsRefusedWithTheReason) {
    Peer third(loop, host.port());
    Peer fourth(loop, host.port());
    third.say(join_of("other", "x", 2));
    fourth.say(join_of("other", "y", 2));
    ASSERT_TRUE(third.expect<Assign>());
    Peer fifth(loop, host.port());
    fifth.say(join_of("other", "z", 2));
    const auto refused = fifth.expect<Refused>();
    ASSERT_TRUE(refused);
    EXPECT_EQ(refused->code, Errc::overloaded);
    EXPECT_THAT(describe(refused->reason), HasSubstr("has 4 connections already"));
    EXPECT_TRUE(fifth.is_closed_by_peer());
    fourth.hang_up();
    ASSERT_TRUE(loop.until([&] { return sessions() == 3; }));
    Peer sixth(loop, host.port());
    sixth.say(running(RoundId{1}));
    const auto heard = sixth.expect<Refused>();
    ASSERT_TRUE(heard);
    EXPECT_EQ(heard->code, Errc::invalid_argument);
    expect_healthy();
}

TEST_F(DaemonBounds, MemberComesBackWhenOthersHaveTakenAllConnections) {
    Join join = join_of("healthy", "a", 2);
    join.report = running(round).report;
    a.hang_up();
    ASSERT_TRUE(loop.until([&] { return sessions() == 1; }));
    std::vector<std::unique_ptr<Peer>> others;
    for (const char* name : {"x", "y", "z"}) {
        others.push_back(std::make_unique<Peer>(loop, host.port()));
        others.back()->say(join_of("other", name, 3));
    }
    ASSERT_TRUE(others.back()->expect<Assign>());
    Join guess = join;
    guess.offer.secret = "guess";
    for (const Join& refused : {join_of("other", "w", 3), guess}) {
        Peer newcomer(loop, host.port());
        newcomer.say(refused);
        const auto answer = newcomer.expect<Refused>();
        ASSERT_TRUE(answer);
        EXPECT_EQ(answer->code, Errc::overloaded);
        EXPECT_TRUE(newcomer.is_closed_by_peer());
    }
    Peer again(loop, host.port());
    again.say(join);
    again.say(running(round));
    EXPECT_TRUE(again.expect<Alive>());
}

TEST_F(DaemonBounds, MemberComesBackThroughAFloodOfStrangers) {
    const std::string greeting("\x00\xCE\xF7\x85\x3C", 5);
    std::vector<std::unique_ptr<Peer>> flood;
    for (int i = 0; i < 40; ++i) {
        flood.push_back(std::make_unique<Peer>(loop, host.port()));
        flood.back()->send(i % 2 == 0 ? greeting : std::string("\x16\x03\x01\x02\x00\x01", 6));
    }
    EXPECT_TRUE(flood.front()->is_closed_by_peer());
    a.hang_up();
    Peer again(loop, host.port());
    for (int i = 0; i < 4; ++i) {
        flood.push_back(std::make_unique<Peer>(loop, host.port()));
    }
    Join join = join_of("healthy", "a", 2);
    join.report = running(round).report;
    again.say(join);
    again.say(running(round));
    const auto alive = again.expect<Alive>();
    EXPECT_TRUE(alive);
    EXPECT_LE(sessions(), 2U + 8U);
}

TEST_F(DaemonBounds, TlsClientIsToldThatThereIsNoTls) {
    Peer stranger(loop, host.port());
    stranger.send(std::string("\x16\x03\x01\x02\x00\x01\x00", 7));
    EXPECT_TRUE(stranger.is_closed_by_peer());
    EXPECT_TRUE(host.has_logged("this daemon has no token and no certificate"));
    expect_healthy();
}

TEST_F(DaemonBounds, JobBeyondTheLimitIsRefusedWithTheReason) {
    Peer third(loop, host.port());
    third.say(join_of("second job", "x", 1));
    ASSERT_TRUE(third.expect<Assign>());
    Peer fourth(loop, host.port());
    fourth.say(join_of("third job", "x", 1));
    const auto refused = fourth.expect<Refused>();
    ASSERT_TRUE(refused);
    EXPECT_EQ(refused->code, Errc::overloaded);
    EXPECT_THAT(describe(refused->reason), HasSubstr("has 2 jobs already"));
    expect_healthy();
}

}  // namespace
}  // namespace regroup::rendezvous
