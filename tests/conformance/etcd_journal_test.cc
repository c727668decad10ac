// SPDX-License-Identifier: Apache-2.0
//
// The journal in a real etcd, which the test stops, continues and deletes keys from.
#include "rendezvous/journal/etcd_journal.h"

#include <csignal>
#include <memory>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "etcd_side.h"
#include "rendezvous/journal/etcd_client.h"
#include "rendezvous/journal/etcd_requests.h"
#include "rendezvous/journal/replay.h"
#include "rendezvous/security/base64.h"
#include "tests/support/etcd_server.h"
#include "tests/support/matchers.h"

namespace regroup::journal {
namespace {

using nlohmann::json;
using security::from_base64;
using security::to_base64;
using testing::EtcdSide;
using testing::Loop;

const SteadyClock kJournalClock;

TEST(Base64, ComesBackForEveryLength) {
    std::string bytes;
    for (int i = 0; i < 300; ++i) {
        EXPECT_EQ(from_base64(to_base64(bytes)), bytes);
        bytes += static_cast<char>(i * 37);
    }
    EXPECT_EQ(to_base64("light w"), "bGlnaHQgdw==");
    EXPECT_EQ(from_base64("abc"), std::nullopt);
    EXPECT_EQ(from_base64("ab=c"), std::nullopt);
    EXPECT_EQ(from_base64("a\n=="), std::nullopt);
}

boost::asio::awaitable<void> fetch(EtcdClient* client, std::string path, json request,
                                   std::optional<Result<json>>* answer) {
    answer->emplace(co_await client->call(path, request, std::chrono::seconds(20)));
}

class EtcdJournalTest : public ::testing::Test {
   protected:
    EtcdJournalTest() { etcd_.start(); }

    std::unique_ptr<EtcdSide> daemon(const std::string& name) {
        auto side = std::make_unique<EtcdSide>();
        side->start(loop_, EtcdSide::options_of(etcd_.port(), name));
        return side;
    }
    /// The answer of etcd to one request.
    json ask(const std::string& path, const json& request) {
        EtcdClient client(loop_.io(), {{{"127.0.0.1", etcd_.port()}}});
        std::optional<Result<json>> answer;
        boost::asio::co_spawn(loop_.io(), fetch(&client, path, request, &answer),
                              boost::asio::detached);
        EXPECT_TRUE(loop_.until([&] { return answer.has_value(); }));
        EXPECT_TRUE(answer && *answer);
        return answer && *answer ? **answer : json();
    }

    testing::TemporaryDirectory folder_;
    testing::EtcdServer etcd_{REGROUP_ETCD, folder_.path() + "/etcd"};
    Loop loop_;
};

TEST_F(EtcdJournalTest, FollowerKnowsTheLeaderAndTakesOverWhenItIsGone) {
    auto a = daemon("a");
    ASSERT_TRUE(loop_.until([&] { return a->leads; }));
    const auto b = daemon("b");
    ASSERT_TRUE(loop_.until([&] { return b->leader == "a:1"; }));
    EXPECT_FALSE(b->leads);
    StoredJob story = testing::story_of_two_rounds().job();
    story.key.id = "a/strange%job";
    a->append(story);
    ASSERT_TRUE(loop_.until([&] { return a->done == story.entries.size(); }));
    a.reset();  // As if it were killed: it does not release its lease.
    ASSERT_TRUE(loop_.until([&] { return b->leads; }));
    ASSERT_EQ(b->jobs.size(), 1U);
    EXPECT_EQ(testing::lines_of(b->jobs[0]), testing::lines_of(story));
}

TEST_F(EtcdJournalTest, ResignedLeaderIsNotAwaited) {
    const auto a = daemon("a");
    ASSERT_TRUE(loop_.until([&] { return a->leads; }));
    const auto b = daemon("b");
    ASSERT_TRUE(loop_.until([&] { return !b->leader.empty(); }));
    bool resigned = false;
    a->journal->resign([&] { resigned = true; });
    EXPECT_TRUE(loop_.until([&] { return resigned && b->leads; }));
    EXPECT_TRUE(
        etcd::pairs_in(ask("/v3/kv/range", etcd::range("regroup/leader", "regroup/leader", 1)))
            .front()
            .value == "b:1");
}

TEST_F(EtcdJournalTest, DaemonThatLostTheLeadKeepsNothing) {
    const auto a = daemon("a");
    ASSERT_TRUE(loop_.until([&] { return a->leads; }));
    // Another daemon has been the leader meanwhile; `a`, whose lease is valid, does not know it.
    ask("/v3/kv/deleterange", {{"key", to_base64("regroup/leader")}});
    ask("/v3/kv/put", {{"key", to_base64("regroup/leader")}, {"value", to_base64("usurper:1")}});
    a->append(testing::story_of_two_rounds().job());
    ASSERT_TRUE(loop_.until([&] { return !a->leads; }));
    EXPECT_EQ(a->done, 0U);
    EXPECT_THAT(a->log, HasSubstr("another daemon has taken the lead"));
    EXPECT_TRUE(
        etcd::pairs_in(ask("/v3/kv/range", etcd::range("regroup/jobs/", "regroup/jobs/", 9)))
            .empty());
}

TEST_F(EtcdJournalTest, DecisionsWaitWhileEtcdIsAwayAndTheLeadEndsWithTheLease) {
    const auto a = daemon("a");
    ASSERT_TRUE(loop_.until([&] { return a->leads; }));
    ASSERT_TRUE(etcd_.program().stop());
    a->append(testing::story_of_two_rounds().job());
    ASSERT_TRUE(loop_.until([&] { return !a->leads; }));
    EXPECT_EQ(a->done, 0U);
    EXPECT_THAT(a->log, HasSubstr("decisions wait until etcd is back"));
    etcd_.program().signal(SIGCONT);
    EXPECT_TRUE(loop_.until([&] { return a->leads; }));
    EXPECT_THAT(a->log, HasSubstr("etcd is back"));
}

TEST_F(EtcdJournalTest, LongJobsAreReadInPagesAndEndedJobsAreDeleted) {
    auto a = daemon("a");
    ASSERT_TRUE(loop_.until([&] { return a->leads; }));
    const StoredJob story = testing::story_of_two_rounds().job();
    constexpr std::size_t kEntries = 700;
    for (std::size_t i = 0; i < kEntries; ++i) {
        a->journal->append({"long", 1}, {story.entries[0]}, [&] { ++a->done; });
    }
    a->append(story);
    ASSERT_TRUE(loop_.until([&] { return a->done == kEntries + story.entries.size(); }));
    a->journal->end(story.key);
    a->journal->append({"last", 9}, {story.entries[0]}, [&] { a->done = 0; });
    ASSERT_TRUE(loop_.until([&] { return a->done == 0; }));
    a.reset();
    const auto b = daemon("b");
    ASSERT_TRUE(loop_.until([&] { return b->leads; }));
    ASSERT_EQ(b->jobs.size(), 2U);
    EXPECT_EQ(b->jobs[0].key.id, "long");
    EXPECT_EQ(b->jobs[0].entries.size(), kEntries);
    EXPECT_EQ(b->jobs[1].key.id, "last");
}

TEST_F(EtcdJournalTest, RoundOfTheMostNodesIsKept) {
    auto a = daemon("a");
    ASSERT_TRUE(loop_.until([&] { return a->leads; }));
    StoredJob story{{"vast", 1},
                    {{Instant(std::chrono::seconds(1)), 1, rendezvous::Restarted{}, {}}}};
    rendezvous::Assignment assignment = testing::sample_assignment();
    assignment.world_size = 8 * journal::kNodesMax;
    for (std::uint32_t i = 0; i < journal::kNodesMax; ++i) {
        assignment.group_rank = i;
        assignment.first_rank = assignment.role_first_rank = 8 * i;
        const std::string name = "node-" + std::to_string(i) + ".rack-7.cluster.example.org#1";
        story.entries[0].assigned.push_back({name, assignment});
    }
    a->append(story);
    ASSERT_TRUE(loop_.until([&] { return a->done == 1; })) << a->log;
    a.reset();
    const auto b = daemon("b");
    ASSERT_TRUE(loop_.until([&] { return b->leads; }));
    ASSERT_EQ(b->jobs.size(), 1U);
    EXPECT_EQ(b->jobs[0].entries.at(0).assigned, story.entries[0].assigned);
}

TEST_F(EtcdJournalTest, DaemonDecidesOnlyWhatEtcdKept) {
    const auto with_etcd = [&](rendezvous::DaemonSetup& setup) {
        setup.open_journal = [&](std::uint16_t port) {
            EtcdJournal::Options options;
            options.endpoints = {{"127.0.0.1", etcd_.port()}};
            options.advertise = "127.0.0.1:" + std::to_string(port);
            return Result(std::unique_ptr<Journal>(
                new EtcdJournal(loop_.io(), kJournalClock, std::move(options))));
        };
    };
    testing::DaemonHost host(loop_, {}, 0, with_etcd);
    ASSERT_TRUE(loop_.until([&] { return host.has_logged("this daemon leads"); }));
    testing::Peer peer(loop_, host.port());
    peer.say(testing::join_of("job", "a", 1));
    EXPECT_TRUE(peer.expect<rendezvous::Assign>());
    etcd::JobsReader reader("regroup/");
    for (etcd::KeyValue& pair :
         etcd::pairs_in(ask("/v3/kv/range", etcd::range("regroup/jobs/", "regroup/jobs/", 99)))) {
        reader.read(std::move(pair));
    }
    std::vector<KeptJob> kept;
    for (etcd::JobsReader::Job& job : reader.take()) {
        kept.push_back(std::move(job.job));
    }
    const std::vector<StoredJob> jobs = testing::read_jobs(kept);
    ASSERT_EQ(jobs.size(), 1U);
    EXPECT_EQ(jobs[0].key.id, "job");
    ASSERT_FALSE(jobs[0].entries.empty());
    EXPECT_EQ(jobs[0].entries[0].assigned.size(), 1U);
}

}  // namespace
}  // namespace regroup::journal
