// SPDX-License-Identifier: Apache-2.0
//
// A daemon with a journal: it must not send decisions too early, and the next daemon knows the
// jobs.
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "daemon_harness.h"
#include "daemon_shelf.h"
#include "journal_stories.h"
#include "rendezvous/journal/replay.h"
#include "rendezvous/journal/sqlite_journal.h"
#include "tests/support/matchers.h"
#include "tests/support/words.h"

namespace regroup::rendezvous {
namespace {

using testing::DaemonJournal;
using testing::ShelfJournal;

TEST_F(DaemonJournal, DecisionIsSentOnlyAfterItsEventIsKept) {
    const auto daemon = host();
    shelf.slow = true;
    Peer a(loop, daemon->port());
    a.say(join_of("job", "a", 1));
    ASSERT_TRUE(loop.until([&] { return shelf.waiting.size() == 1; }));
    ASSERT_EQ(only_job().entries.size(), 1U);
    EXPECT_EQ(only_job().entries[0].assigned.size(), 1U);
    loop.run_for(std::chrono::milliseconds(50));
    EXPECT_EQ(daemon->daemon().counters().messages_out, 0U);
    shelf.release();
    EXPECT_TRUE(a.expect<Assign>());
}

TEST_F(DaemonJournal, RoutineHeartbeatsWaitForTheNextOtherEvent) {
    const auto daemon = host();
    Peer a(loop, daemon->port());
    a.say(join_of("job", "a", 1));
    ASSERT_TRUE(a.expect<Assign>());
    a.say(running(RoundId{1}));
    ASSERT_TRUE(a.expect<Alive>());
    ASSERT_TRUE(loop.until([&] { return only_job().entries.size() == 2; }));
    const std::size_t before = 2;
    for (int i = 0; i < 20; ++i) {
        a.say(running(RoundId{1}));
        ASSERT_TRUE(a.expect<Alive>());
    }
    EXPECT_EQ(only_job().entries.size(), before);
    a.hang_up();
    ASSERT_TRUE(loop.until([&] { return only_job().entries.size() == before + 2; }));
    const auto& entries = only_job().entries;
    EXPECT_TRUE(std::holds_alternative<NodeReported>(*entries[before].event));
    EXPECT_TRUE(std::holds_alternative<NodeDisconnected>(*entries[before + 1].event));
    const auto replayed = journal::replay(journal::kept(only_job()), [](const std::string&) {});
    ASSERT_TRUE(replayed) << replayed.error().detail;
    EXPECT_TRUE(replayed->is_same());
}

TEST_F(DaemonJournal, ReportThatDecidesNothingIsKeptLaterButInOrder) {
    const auto daemon = host();
    Peer a(loop, daemon->port());
    Peer b(loop, daemon->port());
    Join join_a = join_of("job", "a", 2);
    Join join_b = join_of("job", "b", 2);
    join_a.policy.restarts_max = join_b.policy.restarts_max = 1;
    a.say(join_a);
    b.say(join_b);
    ASSERT_TRUE(a.expect<Assign>() && b.expect<Assign>());
    ASSERT_EQ(only_job().entries.size(), 2U);
    shelf.slow = true;  // There is no answer before the entry is kept.
    a.say(running(RoundId{1}));
    ASSERT_TRUE(a.expect<Alive>());
    b.say(running(RoundId{1}));
    ASSERT_TRUE(b.expect<Alive>());
    shelf.release();
    EXPECT_TRUE(loop.until([&] { return only_job().entries.size() == 4; }));
    Report failed = running(RoundId{1});
    failed.report.state = NodeState::stopped;
    failed.report.failure.emplace().exit_code = 1;
    a.say(failed);
    ASSERT_TRUE(b.expect<Stop>());
    Report stopping = running(RoundId{1});
    stopping.report.state = NodeState::stopping;
    b.say(stopping);
    ASSERT_TRUE(b.expect<Alive>());
    stopping.report.state = NodeState::stopped;
    b.say(stopping);
    ASSERT_TRUE(b.expect<Assign>());
    std::vector<std::string> told;
    const auto replayed = journal::replay(journal::kept(only_job()), [&](const std::string& line) {
        if (line.find(" reports ") != std::string::npos) {
            told.push_back(line.substr(line.find_first_not_of("0123456789. s")));
        }
    });
    ASSERT_TRUE(replayed) << replayed.error().detail;
    EXPECT_TRUE(replayed->is_same());
    ASSERT_EQ(told.size(), 5U) << testing::lines_of(only_job());
    EXPECT_THAT(told[3], HasSubstr("b reports stopping"));
    EXPECT_THAT(told[4], HasSubstr("b reports stopped"));
}

TEST_F(DaemonJournal, MessagesToWaitingNodesAreNotKept) {
    const auto daemon = host();
    Peer a(loop, daemon->port());
    Peer standby(loop, daemon->port());
    a.say(join_of("job", "a", 1));
    ASSERT_TRUE(a.expect<Assign>());
    a.say(running(RoundId{1}));
    ASSERT_TRUE(a.expect<Alive>());
    standby.say(join_of("job", "b", 1));
    ASSERT_TRUE(loop.until([&] { return only_job().entries.size() == 3; }));
    ASSERT_TRUE(standby.expect<Waiting>());
    for (int heartbeat = 0; heartbeat < 2; ++heartbeat) {
        standby.say(Report{join_of("job", "b", 1).report});
        ASSERT_TRUE(standby.expect<Waiting>());
    }
    EXPECT_EQ(only_job().entries.size(), 3U) << testing::lines_of(only_job());
}

TEST_F(DaemonJournal, RefusedJoinIsNotKept) {
    const auto daemon = host();
    Peer a(loop, daemon->port());
    a.say(join_of("job", "a", 2));
    ASSERT_TRUE(loop.until([&] { return !shelf.jobs.empty(); }));
    for (int i = 0; i < 3; ++i) {
        Peer other(loop, daemon->port());
        other.say(join_of("job", "b", 3));
        ASSERT_TRUE(other.expect<Refused>());
    }
    EXPECT_EQ(only_job().entries.size(), 1U) << testing::lines_of(only_job());
}

TEST_F(DaemonJournal, NodeThatHasSeenMoreThanTheJournalShowsThatItWasCutBack) {
    auto daemon = host();
    Peer a(loop, daemon->port());
    a.say(join_of("job", "a", 1));
    ASSERT_TRUE(a.expect<Assign>());
    daemon = host();
    const std::string cut_back = "job job: node a has been in round 4, and the journal ended in";
    Join join = join_of("job", "a", 1);
    join.report = running(RoundId{1}).report;
    Peer same(loop, daemon->port());
    same.say(join);
    same.say(running(RoundId{1}));
    ASSERT_TRUE(same.expect<Alive>());
    EXPECT_FALSE(daemon->has_logged(cut_back));
    join.report = running(RoundId{4}).report;
    Peer later(loop, daemon->port());
    later.say(join);
    EXPECT_TRUE(loop.until([&] { return daemon->has_logged(cut_back); }));
}

TEST_F(DaemonJournal, DaemonThatDoesNotLeadNamesTheLeaderAndAcceptsNothing) {
    const auto daemon = host(/*leads=*/false);
    for (const std::string& leader : {std::string(), std::string("node2:29400")}) {
        shelf.hooks.follow(leader);
        Peer a(loop, daemon->port());
        a.say(join_of("job", "a", 1));
        const auto elsewhere = a.expect<Elsewhere>();
        ASSERT_TRUE(elsewhere);
        EXPECT_EQ(elsewhere->endpoint, leader);
        EXPECT_TRUE(a.is_closed_by_peer());
        Peer operator_of(loop, daemon->port());
        operator_of.say(Operate{"", Operate::Action::stop, "", "ann", ""});
        EXPECT_TRUE(operator_of.expect<Elsewhere>());
        EXPECT_THAT(
            get_by_http(loop, daemon->port(), "/api/v1/jobs"),
            AllOf(::testing::StartsWith("HTTP/1.1 503 "), HasSubstr("Regroup-Leader: " + leader)));
    }
    EXPECT_TRUE(shelf.jobs.empty());
    ShelfJournal::lead(shelf);
    Peer a(loop, daemon->port());
    a.say(join_of("job", "a", 1));
    EXPECT_TRUE(a.expect<Assign>());
}

TEST_F(DaemonJournal, DaemonThatLosesTheLeadClosesItsConnectionsSilently) {
    const auto daemon = host();
    Peer a(loop, daemon->port());
    a.say(join_of("job", "a", 1));
    ASSERT_TRUE(a.expect<Assign>());
    shelf.slow = true;
    Report stopped = running(RoundId{1});
    stopped.report.state = NodeState::stopped;
    a.say(stopped);
    ASSERT_TRUE(loop.until([&] { return shelf.waiting.size() == 1; }));
    shelf.hooks.follow("b:1");
    EXPECT_TRUE(a.is_closed_by_peer());
    const auto said = daemon->daemon().counters().messages_out;
    shelf.release();  // Too late: this daemon decides nothing now.
    loop.run_for(std::chrono::milliseconds(20));
    EXPECT_EQ(daemon->daemon().counters().messages_out, said);
}

// ---- Operators.

TEST_F(DaemonJournal, OperatorIsAnsweredOnceTheRequestIsKept) {
    const auto daemon = host();
    Peer a(loop, daemon->port());
    a.say(join_of("job", "a", 1));
    ASSERT_TRUE(a.expect<Assign>());
    const auto ask = [&](const Operate& wish) {
        Peer peer(loop, daemon->port());
        peer.say(wish);
        return peer.expect<Operated>().value_or(Operated{});
    };
    const std::string status = body_by_http(loop, daemon->port(), "/api/v1/jobs");
    EXPECT_THAT(status, saying("\"job\":\"job\"", Not(HasSubstr("\"journal\""))));
    shelf.trouble = "the disk is full";
    EXPECT_THAT(body_by_http(loop, daemon->port(), "/api/v1/jobs?job=job"),
                HasSubstr("\"journal\":\"the disk is full\""));
    const Operated unknown = ask({"", Operate::Action::drain, "z", "ann", ""});
    EXPECT_FALSE(unknown.done);
    EXPECT_THAT(unknown.text, HasSubstr("no node z"));
    EXPECT_FALSE(ask({"other", Operate::Action::stop, "", "ann", ""}).done);
    EXPECT_TRUE(ask({"job", Operate::Action::stop, "", "ann@login1", "enough"}).done);
    const auto closed = a.expect<Closed>();
    ASSERT_TRUE(closed);
    EXPECT_EQ(closed->verdict.author, "ann@login1");
    EXPECT_THAT(ask({"job", Operate::Action::stop, "", "ann", ""}).text, HasSubstr("has ended"));
}

TEST_F(DaemonJournal, OperatorMustNameOneOfSeveralJobs) {
    const auto daemon = host();
    Peer a(loop, daemon->port());
    Peer b(loop, daemon->port());
    a.say(join_of("one", "a", 1));
    b.say(join_of("two", "b", 1));
    ASSERT_TRUE(a.expect<Assign>() && b.expect<Assign>());
    Peer peer(loop, daemon->port());
    peer.say(Operate{"", Operate::Action::stop, "", "ann", ""});
    const auto operated = peer.expect<Operated>();
    ASSERT_TRUE(operated);
    EXPECT_FALSE(operated->done);
    EXPECT_THAT(operated->text, HasSubstr("one, two"));
    EXPECT_THAT(body_by_http(loop, daemon->port(), "/api/v1/events"), HasSubstr("one, two"));
}

// ---- In a directory.

TEST(DaemonSqlite, JobOutlivesItsDaemon) {
    std::string folder = std::filesystem::temp_directory_path() / "regroup-daemon-XXXXXX";
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    Loop loop;
    RoundId last = RoundId::none;
    for (int life = 0; life < 3; ++life) {
        DaemonHost daemon(loop, {}, 0, [&](DaemonSetup& setup) {
            setup.open_journal = [&](std::uint16_t /*port*/) {
                auto opened = journal::SqliteJournal::open(folder, 1);
                return Result(std::unique_ptr<journal::Journal>(*std::move(opened)));
            };
        });
        Peer a(loop, daemon.port());
        Join join = join_of("job", "a", 1);
        join.policy.restarts_max = 10;
        join.report.round = last;  // Its workers have ended while the daemon was away.
        a.say(join);
        std::optional<FromDaemon> word = a.next();
        if (word && std::holds_alternative<Recovered>(*word)) {
            word = a.next();  // The message for the previous connection.
        }
        ASSERT_TRUE(word);
        const auto* const assign = std::get_if<Assign>(&*word);
        ASSERT_NE(assign, nullptr);
        EXPECT_GT(assign->assignment.round, last) << "rounds only grow";
        last = assign->assignment.round;
        daemon.destroy();
    }
    std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace regroup::rendezvous
