// SPDX-License-Identifier: Apache-2.0
//
// A daemon that keeps its jobs: what it must not say too early, and what the next one knows.
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>

#include <gmock/gmock.h>

#include "daemon_harness.h"
#include "rendezvous/journal/replay.h"
#include "rendezvous/journal/sqlite_journal.h"

namespace regroup::rendezvous {
namespace {

using testing::DaemonHost;
using ::testing::HasSubstr;
using testing::join_of;
using testing::Loop;
using testing::Peer;
using testing::running;

/// What outlives a journal, and how it behaves.
struct Shelf {
    std::map<journal::JobKey, journal::StoredJob> jobs;
    std::vector<std::function<void()>> waiting;  // While `slow`.
    bool slow = false;
    journal::Journal::Hooks hooks;

    void release() {
        slow = false;
        for (const auto& done : std::exchange(waiting, {})) {
            done();
        }
    }
};

class ShelfJournal final : public journal::Journal {
   public:
    ShelfJournal(Shelf& shelf, bool leads) : shelf_(shelf), leads_(leads) {}

    void start(Hooks hooks) override {
        shelf_.hooks = std::move(hooks);
        if (leads_) {
            lead(shelf_);
        }
    }
    static void lead(Shelf& shelf) {
        std::vector<journal::StoredJob> open;
        for (const auto& [key, job] : shelf.jobs) {
            if (!job.ended) {
                open.push_back(job);
            }
        }
        shelf.hooks.lead(open);
    }
    void append(const journal::JobKey& key, std::vector<journal::Entry> entries,
                std::function<void()> done) override {
        journal::StoredJob& job = shelf_.jobs[key];
        job.key = key;
        for (journal::Entry& entry : entries) {
            job.entries.push_back(std::move(entry));
        }
        if (shelf_.slow) {
            shelf_.waiting.push_back(std::move(done));
        } else {
            done();
        }
    }
    void end(const journal::JobKey& key) override { shelf_.jobs[key].ended = true; }

   private:
    Shelf& shelf_;
    bool leads_;
};

class DaemonJournal : public ::testing::Test {
   protected:
    std::unique_ptr<DaemonHost> host(bool leads = true) {
        auto daemon = std::make_unique<DaemonHost>(loop);
        daemon->daemon().use_journal(std::make_unique<ShelfJournal>(shelf, leads));
        return daemon;
    }
    [[nodiscard]] const journal::StoredJob& only_job() const { return shelf.jobs.begin()->second; }

    Loop loop;
    Shelf shelf;
};

TEST_F(DaemonJournal, NobodyHearsOfADecisionBeforeItsEventIsKept) {
    const auto daemon = host();
    shelf.slow = true;
    Peer a(loop, daemon->port());
    a.say(join_of("job", "a", 1));
    ASSERT_TRUE(loop.until([&] { return shelf.waiting.size() == 1; }));
    ASSERT_EQ(only_job().entries.size(), 1U);
    EXPECT_EQ(only_job().entries[0].assigned.size(), 1U);
    loop.run_for(std::chrono::milliseconds(50));
    EXPECT_EQ(daemon->daemon().traffic().messages_out, 0U);
    shelf.release();
    EXPECT_TRUE(a.expect<Assign>());
}

TEST_F(DaemonJournal, TheNextDaemonKnowsTheRoundAndGoesOnWithIt) {
    auto daemon = host();
    Peer a(loop, daemon->port());
    Peer b(loop, daemon->port());
    Join join = join_of("job", "a", 2);
    a.say(join);
    b.say(join_of("job", "b", 2));
    const auto assign = a.expect<Assign>();
    ASSERT_TRUE(assign && b.expect<Assign>());
    a.say(running(RoundId{1}));
    ASSERT_TRUE(a.expect<Alive>());
    daemon = host();
    EXPECT_TRUE(daemon->has_logged("job job: taken up again from the journal, round 1"));
    Peer again(loop, daemon->port());
    join.report = running(RoundId{1}).report;
    again.say(join);
    again.say(running(RoundId{1}));
    // It is a member still: it has nothing to do, and is neither fenced nor stopped.
    const std::optional<FromDaemon> answer = again.next();
    ASSERT_TRUE(answer);
    EXPECT_TRUE(std::holds_alternative<Alive>(*answer)) << testing::shown(answer);
}

TEST_F(DaemonJournal, HeartbeatsThatSayNothingNewWaitForAnEventThatDoes) {
    const auto daemon = host();
    Peer a(loop, daemon->port());
    a.say(join_of("job", "a", 1));
    ASSERT_TRUE(a.expect<Assign>());
    a.say(running(RoundId{1}));
    ASSERT_TRUE(a.expect<Alive>());
    const std::size_t before = only_job().entries.size();
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
    const auto replayed = journal::replay(only_job(), [](const std::string&) {});
    ASSERT_TRUE(replayed) << replayed.error().detail;
    EXPECT_TRUE(replayed->is_same());
}

TEST_F(DaemonJournal, WhatThoseWhoWaitAreToldIsNotKept) {
    const auto daemon = host();
    Peer a(loop, daemon->port());
    Peer spare(loop, daemon->port());
    a.say(join_of("job", "a", 1));
    ASSERT_TRUE(a.expect<Assign>());
    a.say(running(RoundId{1}));
    ASSERT_TRUE(a.expect<Alive>());
    spare.say(join_of("job", "b", 1));
    ASSERT_TRUE(loop.until([&] { return only_job().entries.size() == 3; }));
    for (int notices = 0; notices < 2; ++notices) {
        a.say(running(RoundId{1}));
        ASSERT_TRUE(a.expect<Alive>());
        ASSERT_TRUE(spare.expect<Waiting>());
    }
    EXPECT_EQ(only_job().entries.size(), 3U) << journal::to_lines(only_job());
}

TEST_F(DaemonJournal, ARefusedJoinIsNotKept) {
    const auto daemon = host();
    Peer a(loop, daemon->port());
    a.say(join_of("job", "a", 2));
    ASSERT_TRUE(loop.until([&] { return !shelf.jobs.empty(); }));
    for (int i = 0; i < 3; ++i) {
        Peer other(loop, daemon->port());
        other.say(join_of("job", "b", 3));
        ASSERT_TRUE(other.expect<Refused>());
    }
    EXPECT_EQ(only_job().entries.size(), 1U) << journal::to_lines(only_job());
}

TEST_F(DaemonJournal, AJobThatIsBegunAnewIsAnotherOne) {
    const auto daemon = host();
    Peer a(loop, daemon->port());
    a.say(join_of("job", "a", 1));
    ASSERT_TRUE(a.expect<Assign>());
    Report finished = running(RoundId{1});
    finished.report.state = NodeState::finished;
    a.say(finished);
    ASSERT_TRUE(a.expect<Closed>());
    Peer b(loop, daemon->port());
    b.say(join_of("job", "b", 1));
    const auto assign = b.expect<Assign>();
    ASSERT_TRUE(assign);
    EXPECT_GT(assign->assignment.round, RoundId{1});
    ASSERT_EQ(shelf.jobs.size(), 2U);
    EXPECT_TRUE(only_job().ended);
    for (const auto& [key, job] : shelf.jobs) {
        const auto replayed = journal::replay(job, [](const std::string&) {});
        ASSERT_TRUE(replayed) << replayed.error().detail;
        EXPECT_TRUE(replayed->is_same());
        EXPECT_EQ(replayed->assignments, 1U);
    }
}

TEST_F(DaemonJournal, AJobThatWasDrainedIsBegunAnew) {
    const auto daemon = host();
    Peer a(loop, daemon->port());
    a.say(join_of("job", "a", 1));
    ASSERT_TRUE(a.expect<Assign>());
    Report report = running(RoundId{1});
    report.report.resident = true;
    report.report.draining = "stopped by SIGTERM";
    a.say(report);
    ASSERT_TRUE(a.expect<Prepare>());
    report.report.state = NodeState::stopped;
    a.say(report);
    const auto closed = a.expect<Closed>();
    ASSERT_TRUE(closed);
    ASSERT_EQ(closed->verdict.exit_code, kExitRequeue);
    Peer b(loop, daemon->port());
    b.say(join_of("job", "b", 1));
    const auto assign = b.expect<Assign>();
    ASSERT_TRUE(assign);
    EXPECT_GT(assign->assignment.round, RoundId{1});
}

TEST_F(DaemonJournal, AJobThatAllHaveLeftIsBegunAnewAndOneThatLostThemGoesOn) {
    auto daemon = host();
    const auto join = [&](Peer& peer, const std::string& name) {
        Join said = join_of("job", name, 1);
        said.policy.restarts_max = 3;
        peer.say(said);
        return peer.expect<Assign>();
    };
    Peer a(loop, daemon->port());
    ASSERT_TRUE(join(a, "a"));
    a.say(Leave{"SIGTERM"});
    // As the journal tells it to the next daemon, too.
    ASSERT_TRUE(loop.until([&] { return only_job().entries.size() == 2; }));
    daemon = host();
    Peer b(loop, daemon->port());
    const auto assign = join(b, "b");
    ASSERT_TRUE(assign);
    EXPECT_EQ(shelf.jobs.size(), 2U) << "another life";
    EXPECT_GT(assign->assignment.round, RoundId{1});
    Peer late(loop, daemon->port());
    b.hang_up();  // It comes back, or it is lost; it is the same job.
    Join back = join_of("job", "b", 1);
    back.policy.restarts_max = 3;
    late.say(back);
    ASSERT_TRUE(late.expect<Assign>());
    EXPECT_EQ(shelf.jobs.size(), 2U);
}

TEST_F(DaemonJournal, WhoDoesNotLeadNamesTheLeaderAndAcceptsNothing) {
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
        operator_of.say(Operate{});
        EXPECT_TRUE(operator_of.expect<Elsewhere>());
    }
    EXPECT_TRUE(shelf.jobs.empty());
    ShelfJournal::lead(shelf);
    Peer a(loop, daemon->port());
    a.say(join_of("job", "a", 1));
    EXPECT_TRUE(a.expect<Assign>());
}

TEST_F(DaemonJournal, WhoLosesTheLeadLetsGoOfItsNodesAndSaysNothingMore) {
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
    const auto said = daemon->daemon().traffic().messages_out;
    shelf.release();  // Too late: this daemon decides nothing any more.
    loop.run_for(std::chrono::milliseconds(20));
    EXPECT_EQ(daemon->daemon().traffic().messages_out, said);
}

// ---- Operators.

TEST_F(DaemonJournal, OperatorsAreAnsweredOnceTheirWishIsKept) {
    const auto daemon = host();
    Peer a(loop, daemon->port());
    a.say(join_of("job", "a", 1));
    ASSERT_TRUE(a.expect<Assign>());
    const auto ask = [&](const Operate& wish) {
        Peer peer(loop, daemon->port());
        peer.say(wish);
        return peer.expect<Operated>().value_or(Operated{});
    };
    const Operated status = ask({"", Operate::Action::status, "", "ann", ""});
    EXPECT_TRUE(status.done);
    EXPECT_THAT(status.text, HasSubstr("\"job\":\"job\""));
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

TEST_F(DaemonJournal, WithSeveralJobsAnOperatorNamesOne) {
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
}

// ---- In a directory.

TEST(DaemonSqlite, AJobOutlivesItsDaemon) {
    std::string folder = std::filesystem::temp_directory_path() / "regroup-daemon-XXXXXX";
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    Loop loop;
    RoundId last = RoundId::none;
    for (int life = 0; life < 3; ++life) {
        DaemonHost daemon(loop);
        auto journal = journal::SqliteJournal::open(folder, 1);
        ASSERT_TRUE(journal) << journal.error().detail;
        daemon.daemon().use_journal(std::move(*journal));
        Peer a(loop, daemon.port());
        Join join = join_of("job", "a", 1);
        join.policy.restarts_max = 10;
        join.report.round = last;  // Its workers have ended while the daemon was away.
        a.say(join);
        std::optional<FromDaemon> word = a.next();
        if (word && std::holds_alternative<Recovered>(*word)) {
            word = a.next();  // That of the life before.
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
