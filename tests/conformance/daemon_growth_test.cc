// SPDX-License-Identifier: Apache-2.0
//
// Bounds on the growth of a daemon and its journal, and the right to speak for a node.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "daemon_harness.h"
#include "daemon_shelf.h"
#include "journal_stories.h"
#include "rendezvous/core/message_bytes.h"
#include "rendezvous/core/round_claim.h"
#include "rendezvous/journal/replay.h"
#include "rendezvous/protocol/codec.h"
#include "tests/support/words.h"

namespace regroup::rendezvous {
namespace {

using std::chrono::milliseconds;
using testing::DaemonHost;
using ::testing::HasSubstr;
using testing::join_of;
using testing::Loop;
using ::testing::Not;
using testing::Peer;
using testing::running;

// ---- Jobs.

class DaemonGrowth : public ::testing::Test {
   protected:
    /// `peer` joins and disconnects, and the daemon has noticed that.
    void visit(DaemonHost& host, const Join& join) {
        const std::size_t before = host.daemon().sessions_count();
        Peer peer(loop, host.port());
        ASSERT_TRUE(peer.say(join) && peer.say(Report{}));
        ASSERT_TRUE(peer.next());  // The answer to the report.
        peer.hang_up();
        ASSERT_TRUE(loop.until([&] { return host.daemon().sessions_count() == before; }));
    }
    static DaemonLimits room_for(std::size_t jobs) {
        DaemonLimits limits;
        limits.jobs_max = jobs;
        return limits;
    }
    std::string refusal(DaemonHost& host, const Join& join, Errc code) {
        Peer peer(loop, host.port());
        EXPECT_TRUE(peer.say(join));
        const auto refused = peer.expect<Refused>();
        EXPECT_TRUE(refused && refused->code == code);
        return refused ? describe(refused->reason) : "";
    }

    Loop loop;
};

TEST_F(DaemonGrowth, NewJobTakesThePlaceOfTheLongestDesertedOneWithoutARound) {
    DaemonHost host(loop, room_for(2));
    visit(host, join_of("first", "a", 2));
    visit(host, join_of("second", "a", 2));
    Peer third(loop, host.port());
    third.say(join_of("third", "a", 1));
    ASSERT_TRUE(third.expect<Assign>());
    EXPECT_TRUE(host.has_logged("job first: forgotten to make room"));
    EXPECT_FALSE(host.has_logged("job second: forgotten"));
    Peer fourth(loop, host.port());
    fourth.say(join_of("fourth", "a", 1));
    ASSERT_TRUE(fourth.expect<Assign>());
    EXPECT_TRUE(host.has_logged("job second: forgotten to make room"));
    // Nodes of both jobs are connected now.
    EXPECT_THAT(refusal(host, join_of("fifth", "a", 1), Errc::overloaded),
                HasSubstr("has 2 jobs already"));
}

TEST_F(DaemonGrowth, JobWithARoundKeepsItsPlaceWhileItsNodesAreAway) {
    DaemonHost host(loop, room_for(1));
    Peer member(loop, host.port());
    member.say(join_of("job", "a", 1));
    ASSERT_TRUE(member.expect<Assign>());
    member.say(running(RoundId{1}));
    ASSERT_TRUE(member.expect<Alive>());
    member.hang_up();
    ASSERT_TRUE(loop.until([&] { return host.daemon().sessions_count() == 0; }));
    EXPECT_THAT(refusal(host, join_of("other", "a", 1), Errc::overloaded),
                HasSubstr("has 1 jobs already"));
}

TEST_F(DaemonGrowth, JobThatHasLostAllItsNodesGivesItsPlace) {
    DaemonHost host(loop, room_for(1));
    Join join = join_of("job", "a", 1);
    join.policy.regroup_window = milliseconds(1);
    visit(host, join);
    std::optional<FromDaemon> answer;
    ASSERT_TRUE(loop.until([&] {
        Peer other(loop, host.port());
        other.say(join_of("other", "a", 1));
        answer = other.next();
        return answer && std::holds_alternative<Assign>(*answer);
    }));
}

TEST_F(DaemonGrowth, RestoredJobsWithoutARoundGiveTheirPlacesToo) {
    testing::Shelf shelf;
    {
        DaemonHost host(loop, room_for(2), 0, testing::with_shelf(shelf));
        Peer first(loop, host.port());
        Peer second(loop, host.port());
        first.say(join_of("first", "a", 2));
        second.say(join_of("second", "a", 2));
        ASSERT_TRUE(loop.until([&] { return shelf.jobs.size() == 2; }));
    }
    DaemonHost host(loop, room_for(2), 0, testing::with_shelf(shelf));
    Peer third(loop, host.port());
    third.say(join_of("third", "a", 1));
    EXPECT_TRUE(third.expect<Assign>());
}

TEST_F(DaemonGrowth, DeadlineOfEachJobIsKept) {
    DaemonHost host(loop);
    std::vector<Peer> peers;
    for (int i = 0; i < 20; ++i) {
        Join join = join_of("job " + std::to_string(i), "a", 1);
        join.policy.nodes_max = 2;
        join.policy.last_call = milliseconds((i * 7) % 20 * 10);
        peers.emplace_back(loop, host.port()).say(join);
    }
    for (Peer& peer : peers) {
        EXPECT_TRUE(peer.expect<Assign>());
    }
}

TEST_F(DaemonGrowth, StatusOfManyJobsShowsThoseThatFitAndCountsTheOthers) {
    constexpr std::size_t kStatusBytesMax = std::size_t{1} << 20U;
    constexpr std::size_t kJobs = 1000;
    DaemonHost host(loop);
    std::vector<Peer> peers;
    for (std::size_t i = 0; i < kJobs; ++i) {
        peers.emplace_back(loop, host.port())
            .say(join_of("job " + std::to_string(i), std::string(200, 'n'), 2));
        peers.back().say(Report{});
        ASSERT_TRUE(peers.back().next());
    }
    const std::string text = testing::body_by_http(loop, host.port(), "/api/v1/jobs");
    EXPECT_LE(text.size(), kStatusBytesMax);
    EXPECT_GT(text.size(), kStatusBytesMax / 2);
    const auto status = nlohmann::json::parse(text);
    EXPECT_EQ(status["jobs"].size() + status.at("jobs_left_out").get<std::size_t>(), kJobs);
    EXPECT_EQ(status["jobs"][0]["nodes"].size(), 1U);
}

// ---- Nodes.

TEST_F(DaemonGrowth, NodesBeyondTheMemoryForAllJobsAreRefusedAsOverload) {
    DaemonLimits limits;
    limits.nodes_bytes_max = std::size_t{100} << 10U;
    DaemonHost host(loop, limits);
    Peer member(loop, host.port());
    Join join = join_of("job", "a", 1);
    join.offer.secret = "a";
    member.say(join);
    ASSERT_TRUE(member.expect<Assign>());
    // Nodes with long addresses, of several jobs.
    std::vector<Peer> peers;
    std::optional<FromDaemon> answer;
    for (int i = 0; i < 100 && !(answer && std::holds_alternative<Refused>(*answer)); ++i) {
        Join big = join_of("other " + std::to_string(i % 3), "n" + std::to_string(i), 300);
        big.offer.other_addresses.assign(protocol::kNamesMax, std::string(200, 'x'));
        peers.emplace_back(loop, host.port()).say(big);
        peers.back().say(Report{});
        answer = peers.back().next();
    }
    ASSERT_TRUE(answer && std::holds_alternative<Refused>(*answer));
    EXPECT_EQ(std::get<Refused>(*answer).code, Errc::overloaded);
    EXPECT_LT(peers.size(), 12U);
    // Known nodes are not refused. Their reports lose only what is for people.
    Join again = join;
    again.report = running(RoundId{1}).report;
    Peer back(loop, host.port());
    back.say(again);
    Report failed = running(RoundId{1});
    failed.report.state = NodeState::stopped;
    failed.report.failure.emplace().exit_code = 7;
    failed.report.failure->last_output = failed.report.failure->error_message =
        std::string(16000, 'x');
    back.say(failed);
    const auto closed = back.expect<Closed>();
    ASSERT_TRUE(closed);
    EXPECT_EQ(closed->verdict.exit_code, 7);
    EXPECT_LT(closed->verdict.failure->last_output.size(), 1000U);
}

TEST_F(DaemonGrowth, MoreNodesThanTheLimitAreRefusedAsOverload) {
    DaemonLimits limits;
    limits.nodes_max = 2;
    DaemonHost host(loop, limits);
    std::vector<Peer> peers;
    for (const char* name : {"a", "b"}) {
        peers.emplace_back(loop, host.port()).say(join_of("job", name, 9));
        peers.back().say(Report{});
        ASSERT_TRUE(peers.back().expect<Waiting>());
    }
    Peer third(loop, host.port());
    third.say(join_of("job", "c", 9));
    const auto refused = third.expect<Refused>();
    ASSERT_TRUE(refused);
    EXPECT_EQ(refused->code, Errc::overloaded);
    // A member that comes back, and a node of another job, are not refused.
    Peer back(loop, host.port());
    back.say(join_of("job", "a", 9));
    back.say(Report{});
    EXPECT_TRUE(back.expect<Waiting>());
    Peer other(loop, host.port());
    other.say(join_of("another", "c", 1));
    EXPECT_TRUE(other.expect<Assign>());
}

TEST_F(DaemonGrowth, OperatorsWhoWaitForOneJobAreLimited) {
    DaemonHost host(loop);
    Peer a(loop, host.port());
    Join join = join_of("job", "a", 1);
    a.say(join);
    ASSERT_TRUE(a.expect<Assign>());
    Report report = running(RoundId{1});
    report.report.elastic = true;
    a.say(report);
    const Operate drain{"job", Operate::Action::drain, "a", "ann", "", true};
    std::vector<Peer> waiting;
    std::optional<Operated> answer;
    do {
        waiting.emplace_back(loop, host.port()).say(drain);
        answer = waiting.back().expect<Operated>();
        ASSERT_TRUE(answer);
    } while (answer->done && waiting.size() < 200);
    EXPECT_FALSE(answer->done);
    EXPECT_THAT(answer->text, HasSubstr("drain the node without --wait"));
    // The end of a waiting operator's connection makes room for another one.
    const std::size_t before = host.daemon().sessions_count();
    waiting.front().hang_up();
    ASSERT_TRUE(loop.until([&] { return host.daemon().sessions_count() < before; }));
    Peer another(loop, host.port());
    another.say(drain);
    answer = another.expect<Operated>();
    EXPECT_TRUE(answer && answer->done);
}

// ---- Claims of rounds.

std::int64_t wall_ms() {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
}

TEST(DaemonClaims, RoundAfterALargeClaimIsAcceptedByEveryLaterDaemon) {
    Loop loop;
    const auto claim = [&](std::uint16_t port, const std::string& name, RoundId round) {
        Peer peer(loop, port);
        Join join = join_of("job", name, 1);
        join.report.round = round;
        peer.say(join);
        const auto assign = peer.expect<Assign>();
        return assign ? assign->assignment.round : RoundId::none;
    };
    {
        DaemonHost host(loop, DaemonLimits{});
        const RoundId largest = round_claim_max(wall_ms());
        EXPECT_GT(claim(host.port(), "a", largest), largest);
    }
    // The largest claim after which no daemon makes a node wait: each skips some numbers.
    constexpr int kDaemons = 3;
    constexpr std::int64_t kSkippedMax = 99'700;
    RoundId round = round_claim_max(wall_ms() - kDaemons * kSkippedMax);
    // Each daemon knows nothing of the one before, and its nodes claim the highest round again.
    for (int daemon = 0; daemon < kDaemons; ++daemon) {
        DaemonHost host(loop, DaemonLimits{});
        const RoundId next = claim(host.port(), "a", round);
        ASSERT_GT(next, round);
        round = next;
    }
    for (const std::uint64_t far : {std::uint64_t{1} << 52U, (std::uint64_t{1} << 52U) - 100}) {
        DaemonHost host(loop, DaemonLimits{});
        Peer liar(loop, host.port());
        Join join = join_of("job", "liar", 1);
        join.report.round = RoundId{far};
        liar.say(join);
        const auto refused = liar.expect<Refused>();
        ASSERT_TRUE(refused);
        // A node whose daemon has a wrong clock tries again.
        EXPECT_EQ(refused->code, Errc::overloaded);
        EXPECT_EQ(claim(host.port(), "a", RoundId::none), RoundId{1});
    }
}

// ---- The journal.

std::size_t bytes_of(const std::vector<journal::Entry>& entries) {
    std::size_t bytes = 0;
    for (const std::string& record : journal::to_records(entries)) {
        bytes += record.size();
    }
    return bytes;
}

using DaemonJournalGrowth = testing::DaemonJournal;

TEST_F(DaemonJournalGrowth, OneTalkativeNodeDoesNotFillTheJournalOfItsJob) {
    const auto daemon = host();
    Peer member(loop, daemon->port());
    member.say(join_of("job", "a", 1));
    ASSERT_TRUE(member.expect<Assign>());
    member.say(running(RoundId{1}));
    ASSERT_TRUE(member.expect<Alive>());
    Peer spare(loop, daemon->port());
    spare.say(join_of("job", "b", 1));
    constexpr int kReports = 20000;
    Report report;
    for (int i = 0; i < kReports; ++i) {
        report.report.store_port = static_cast<std::uint16_t>(1000 + i % 2);
        report.report.draining =
            std::string(4000, static_cast<char>('a' + i % 26)) + std::to_string(i);
        ASSERT_TRUE(spare.say(report));
        spare.say(Resumed{RoundId{1}, 1});
    }
    const std::uint64_t all = 2U * kReports + 3;
    ASSERT_TRUE(loop.until([&] { return daemon->daemon().counters().messages_in >= all; }));
    // The member's words are kept.
    Report failed = running(RoundId{1});
    failed.report.state = NodeState::stopped;
    failed.report.failure.emplace().exit_code = 7;
    failed.report.failure->last_output = "the last word";
    member.say(failed);
    const auto closed = member.expect<Closed>();
    ASSERT_TRUE(closed);
    EXPECT_EQ(closed->verdict.failure->last_output, "the last word");
    EXPECT_LT(bytes_of(only_job().entries), std::size_t{6} << 20U);
    const auto replayed = journal::replay(journal::kept(only_job()), [](const std::string&) {});
    ASSERT_TRUE(replayed) << replayed.error().detail;
    EXPECT_TRUE(replayed->is_same());
}

TEST_F(DaemonJournalGrowth, NodeThatJoinsAgainAndAgainIsRefusedAsOverload) {
    const auto daemon = host();
    Peer member(loop, daemon->port());
    member.say(join_of("job", "a", 1));
    ASSERT_TRUE(member.expect<Assign>());
    Peer spare(loop, daemon->port());
    Join join = join_of("job", "b", 1);
    join.offer.other_addresses.assign(protocol::kNamesMax, std::string(200, 'x'));
    bool open = true;
    for (int i = 0; i < 5000 && open; ++i) {
        open = spare.say(join) && !spare.is_closed_by_peer(Duration::zero());
    }
    EXPECT_TRUE(daemon->has_logged("faster than its journal may grow"));
    EXPECT_LT(bytes_of(only_job().entries), std::size_t{6} << 20U);
    member.say(running(RoundId{1}));
    EXPECT_TRUE(member.expect<Alive>());
}

// The kinds of refusals that a stranger can repeat at will must not keep others out.
TEST_F(DaemonJournalGrowth, RefusedJoinsUseNothingUp) {
    const auto daemon = host();
    Peer member(loop, daemon->port());
    member.say(join_of("job", "a", 1));
    ASSERT_TRUE(member.expect<Assign>());
    Join wrong = join_of("job", "b", 2);
    wrong.offer.other_addresses.assign(protocol::kNamesMax, std::string(255, 'x'));
    const std::string frame = protocol::make_frame(protocol::encode(FromAgent(wrong)));
    for (std::size_t sent = 0; sent < std::size_t{40} << 20U; sent += frame.size()) {
        Peer stranger(loop, daemon->port());
        ASSERT_TRUE(stranger.send(frame));
        const auto refused = stranger.expect<Refused>();
        ASSERT_TRUE(refused);
        ASSERT_EQ(refused->code, Errc::invalid_argument) << describe(refused->reason);
    }
}

// ---- Who speaks for a node.

using DaemonIdentity = testing::DaemonJournal;

Join with_secret(Join join, const std::string& secret) {
    join.offer.secret = secret;
    return join;
}

TEST_F(DaemonIdentity, ConnectionWithAnotherSecretTakesNoNodesPlace) {
    const auto daemon = host();
    Peer a(loop, daemon->port());
    const Join genuine = with_secret(join_of("job", "a", 1), "one");
    a.say(genuine);
    ASSERT_TRUE(a.expect<Assign>());
    a.say(running(RoundId{1}));
    ASSERT_TRUE(a.expect<Alive>());
    const std::size_t before = only_job().entries.size();
    for (const std::string secret : {"two", ""}) {
        Join false_one = with_secret(genuine, secret);
        false_one.policy.nodes_max = 7;  // It learns nothing about the policy either.
        Peer impostor(loop, daemon->port());
        impostor.say(false_one);
        impostor.say(Leave{"its agent was killed", true});
        const auto refused = impostor.expect<Refused>();
        ASSERT_TRUE(refused);
        EXPECT_EQ(refused->code, Errc::invalid_argument);
        EXPECT_THAT(describe(refused->reason), HasSubstr("has another secret"));
        EXPECT_THAT(describe(refused->reason), Not(HasSubstr(genuine.node)));
        EXPECT_THAT(describe(refused->reason), Not(HasSubstr("--nnodes")));
        EXPECT_TRUE(impostor.is_closed_by_peer());
    }
    a.say(running(RoundId{1}));
    EXPECT_TRUE(a.expect<Alive>());
    EXPECT_EQ(only_job().entries.size(), before);
}

TEST_F(DaemonIdentity, SecretCountsWhileTheNodeIsAwayAndForTheNextDaemon) {
    auto daemon = host();
    Join genuine = with_secret(join_of("job", "a", 1), "one");
    {
        Peer a(loop, daemon->port());
        a.say(genuine);
        ASSERT_TRUE(a.expect<Assign>());
        a.say(running(RoundId{1}));
        ASSERT_TRUE(a.expect<Alive>());
        const std::size_t before = only_job().entries.size();
        a.hang_up();
        ASSERT_TRUE(loop.until([&] { return only_job().entries.size() > before; }));
    }
    genuine.report = running(RoundId{1}).report;
    const auto expect_refused = [&] {
        Peer impostor(loop, daemon->port());
        impostor.say(with_secret(genuine, "two"));
        EXPECT_TRUE(impostor.expect<Refused>());
    };
    expect_refused();
    daemon = host();
    ASSERT_TRUE(loop.until([&] { return daemon->has_logged("taken up again from the journal"); }));
    expect_refused();
    Peer back(loop, daemon->port());
    back.say(genuine);
    back.say(running(RoundId{1}));
    EXPECT_TRUE(back.expect<Alive>());
}

// Another process of the same node has the offer of the dead agent.
TEST_F(DaemonIdentity, LastWordsOfAKilledAgentAreBelieved) {
    const auto daemon = host();
    Peer a(loop, daemon->port());
    const Join genuine = with_secret(join_of("job", "a", 1), "one");
    a.say(genuine);
    ASSERT_TRUE(a.expect<Assign>());
    a.say(running(RoundId{1}));
    ASSERT_TRUE(a.expect<Alive>());
    Peer warden(loop, daemon->port());
    Join last = genuine;
    last.report = running(RoundId{1}).report;
    warden.say(last);
    warden.say(Leave{"its agent was killed", true});
    EXPECT_TRUE(loop.until([&] {
        return std::any_of(only_job().entries.begin(), only_job().entries.end(),
                           [](const journal::Entry& entry) {
                               return entry.event && std::holds_alternative<NodeLeft>(*entry.event);
                           });
    }));
}

TEST_F(DaemonIdentity, NeitherStatusNorAnyLineOfTheLogNamesAnId) {
    const auto daemon = host();
    Peer a(loop, daemon->port());
    const Join join = join_of("job", "a", 1);
    a.say(join);
    ASSERT_TRUE(a.expect<Assign>());
    a.say(join_of("job", "b", 1));  // A second node over the same connection.
    const auto refused = a.expect<Refused>();
    ASSERT_TRUE(refused);
    EXPECT_THAT(describe(refused->reason), Not(HasSubstr(join.node)));
    const std::string status = testing::body_by_http(loop, daemon->port(), "/api/v1/jobs");
    EXPECT_THAT(status, HasSubstr(R"("job":"job")"));
    EXPECT_THAT(status, Not(HasSubstr(join.node)));
    EXPECT_FALSE(daemon->has_logged(join.node));
}

}  // namespace
}  // namespace regroup::rendezvous
