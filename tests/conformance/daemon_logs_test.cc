// SPDX-License-Identifier: Apache-2.0
//
// How a daemon passes on what an operator asks of the output of a rank.
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "daemon_harness.h"
#include "rendezvous/server/log_requests.h"
#include "tests/support/matchers.h"

namespace regroup::rendezvous {
namespace {

using nlohmann::json;

class DaemonLogs : public ::testing::Test {
   protected:
    DaemonLogs() : host(loop), a(loop, host.port()), b(loop, host.port()) {
        for (Peer* peer : {&a, &b}) {
            Join join = join_of("job", peer == &a ? "a" : "b", 2);
            join.offer.reads_logs = true;
            peer->say(join);
        }
        for (Peer* peer : {&a, &b}) {
            EXPECT_TRUE(peer->expect<Assign>());
        }
    }
    static Operate ask(std::uint32_t rank) {
        Operate wish;
        wish.job = "job";
        wish.action = Operate::Action::logs;
        wish.author = "ann";
        wish.log = {rank, LogStream::err, "", "", 0, 20};
        return wish;
    }
    /// The object in the answer.
    static json answer_to(Peer& reader) {
        const auto operated = reader.expect<Operated>();
        EXPECT_TRUE(operated && operated->done);
        return operated ? json::parse(operated->text, nullptr, false) : json();
    }

    Loop loop;
    DaemonHost host;
    Peer a;
    Peer b;
};

TEST_F(DaemonLogs, NodeOfTheRankIsAskedAndItsAnswerPassedOn) {
    Peer reader(loop, host.port());
    reader.say(ask(3));
    auto asked = b.expect<ReadLog>();
    ASSERT_TRUE(asked);
    EXPECT_EQ(asked->wish, ask(3).log);
    b.say(LogPart{asked->ticket, "/runs/3.err", 12, "some \"text\"\n", true, ""});
    const json part = answer_to(reader);
    EXPECT_EQ(part["node"], "b");
    EXPECT_EQ(part["file"], "/runs/3.err");
    EXPECT_EQ(part["offset"], 12);
    EXPECT_EQ(part["text"], "some \"text\"\n");
    EXPECT_EQ(part["more"], true);
    // The connection stays for the next part.
    loop.run_for(std::chrono::milliseconds(20));
    Operate next = ask(3);
    next.log.node = "b";
    next.log.file = "/runs/3.err";
    next.log.offset = 12;
    reader.say(next);
    asked = b.expect<ReadLog>();
    ASSERT_TRUE(asked);
    EXPECT_EQ(asked->wish, next.log);
    b.say(LogPart{asked->ticket, "", 0, "", false, "the disk is gone"});
    EXPECT_THAT(answer_to(reader)["note"], HasSubstr("the disk is gone"));
    EXPECT_EQ(host.count_logged("logs asked for by ann"), 1U) << "not for each part";
}

TEST_F(DaemonLogs, LargestPartFitsTheAnswer) {
    Peer reader(loop, host.port());
    reader.say(ask(0));
    const auto asked = a.expect<ReadLog>();
    ASSERT_TRUE(asked);
    const std::string worst(8192, '\x01');
    a.say(LogPart{asked->ticket, "/runs/0.err", 8192, worst, false, ""});
    EXPECT_EQ(answer_to(reader)["text"], worst);
}

TEST_F(DaemonLogs, AnswerToAnotherNodesRequestIsIgnored) {
    Peer reader(loop, host.port());
    reader.say(ask(3));
    const auto asked = b.expect<ReadLog>();
    ASSERT_TRUE(asked);
    a.say(LogPart{asked->ticket, "/runs/3.err", 5, "forged", false, ""});
    a.say(running(RoundId{1}));
    ASSERT_TRUE(a.expect<Alive>());
    b.say(LogPart{asked->ticket, "/runs/3.err", 4, "own\n", false, ""});
    EXPECT_EQ(answer_to(reader)["text"], "own\n");
}

TEST_F(DaemonLogs, NodeThatIsSilentOrLeavesIsNotWaitedFor) {
    Peer reader(loop, host.port());
    reader.say(ask(3));
    ASSERT_TRUE(b.expect<ReadLog>());
    EXPECT_THAT(answer_to(reader)["note"], HasSubstr("node b has not answered within"));
    Peer other(loop, host.port());
    other.say(ask(3));
    ASSERT_TRUE(b.expect<ReadLog>());
    b.hang_up();
    EXPECT_THAT(answer_to(other)["note"], HasSubstr("node b has broken"));
}

TEST_F(DaemonLogs, ReaderThatAsksBeforeTheAnswerIsRefused) {
    Peer reader(loop, host.port());
    reader.say(ask(0));
    ASSERT_TRUE(a.expect<ReadLog>());
    loop.run_for(std::chrono::milliseconds(20));
    reader.say(ask(0));
    const auto refused = reader.expect<Operated>();
    ASSERT_TRUE(refused);
    EXPECT_FALSE(refused->done);
    EXPECT_TRUE(reader.is_closed_by_peer());
}

TEST_F(DaemonLogs, ReadersOfOneUserAreLimited) {
    std::vector<Peer> readers;
    for (std::size_t i = 0; i < LogRequests::kMaxOfOne; ++i) {
        readers.emplace_back(loop, host.port()).say(ask(0));
        ASSERT_TRUE(a.expect<ReadLog>());
    }
    Peer one_more(loop, host.port());
    one_more.say(ask(0));
    const auto refused = one_more.expect<Operated>();
    ASSERT_TRUE(refused);
    EXPECT_FALSE(refused->done);
    const std::size_t before = host.daemon().sessions_count();
    readers.front().hang_up();
    ASSERT_TRUE(loop.until([&] { return host.daemon().sessions_count() < before; }));
    Peer another(loop, host.port());
    another.say(ask(1));
    EXPECT_TRUE(a.expect<ReadLog>()) << "the end of a reader makes room for another one";
}

TEST_F(DaemonLogs, RankThatIsNowhereIsSaid) {
    Peer reader(loop, host.port());
    reader.say(ask(4));
    EXPECT_THAT(answer_to(reader)["note"], HasSubstr("no rank 4"));
    loop.run_for(std::chrono::milliseconds(20));
    Peer stop(loop, host.port());
    stop.say(Operate{"job", Operate::Action::stop, "", "ann", "enough"});
    ASSERT_TRUE(stop.expect<Operated>());
    reader.say(ask(1));
    EXPECT_EQ(answer_to(reader)["ended"], true);
}

TEST_F(DaemonLogs, NodeOfAnOlderVersionIsNotAsked) {
    DaemonHost other(loop);
    Peer old(loop, other.port());
    old.say(join_of("job", "a", 1));
    ASSERT_TRUE(old.expect<Assign>());
    Peer reader(loop, other.port());
    reader.say(ask(0));
    const auto refused = reader.expect<Operated>();
    ASSERT_TRUE(refused);
    EXPECT_FALSE(refused->done);
    old.say(running(RoundId{1}));
    EXPECT_TRUE(old.expect<Alive>());
}

}  // namespace
}  // namespace regroup::rendezvous
