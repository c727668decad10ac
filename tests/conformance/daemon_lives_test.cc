// SPDX-License-Identifier: Apache-2.0
//
// Successive daemons, and successive jobs of one id.
#include <boost/asio/post.hpp>
#include <gmock/gmock.h>

#include "daemon_shelf.h"
#include "journal_stories.h"
#include "rendezvous/base/exit_code.h"

namespace regroup::rendezvous {
namespace {

using testing::DaemonJournal;

using DaemonLives = DaemonJournal;

TEST_F(DaemonLives, NextDaemonKnowsTheRoundAndContinuesIt) {
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
    EXPECT_TRUE(loop.until(
        [&] { return daemon->has_logged("job job: taken up again from the journal, round 1"); }));
    Peer again(loop, daemon->port());
    join.report = running(RoundId{1}).report;
    again.say(join);
    again.say(running(RoundId{1}));
    // It is still a member: it has nothing to do, and is neither fenced nor stopped.
    const std::optional<FromDaemon> answer = again.next();
    ASSERT_TRUE(answer);
    EXPECT_TRUE(std::holds_alternative<Alive>(*answer)) << testing::shown(answer);
}

TEST_F(DaemonLives, JobBegunAnewIsASeparateJob) {
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
    EXPECT_EQ(assign->assignment.round, RoundId{2});
    ASSERT_EQ(shelf.jobs.size(), 2U);
    for (const auto& [key, job] : shelf.jobs) {
        const auto replayed = journal::replay(journal::kept(job), [](const std::string&) {});
        ASSERT_TRUE(replayed) << replayed.error().detail;
        EXPECT_TRUE(replayed->is_same());
        EXPECT_EQ(replayed->assignments, 1U);
    }
}

TEST_F(DaemonLives, NextDaemonKnowsHowThePreviousJobEnded) {
    auto daemon = host();
    Peer a(loop, daemon->port());
    Join join = join_of("job", "a", 1);
    a.say(join);
    ASSERT_TRUE(a.expect<Assign>());
    Report finished = running(RoundId{1});
    finished.report.state = NodeState::finished;
    a.say(finished);
    ASSERT_TRUE(a.expect<Closed>());
    Peer b(loop, daemon->port());
    b.say(join_of("job", "b", 1));
    ASSERT_TRUE(b.expect<Assign>());
    for (int life = 0; life < 2; ++life) {
        // It has not heard that the job is over.
        Peer again(loop, daemon->port());
        join.report = finished.report;
        again.say(join);
        const auto closed = again.expect<Closed>();
        ASSERT_TRUE(closed) << life;
        EXPECT_EQ(closed->verdict.outcome, Outcome::succeeded);
        daemon = host();
    }
    ASSERT_EQ(shelf.jobs.size(), 2U);
    EXPECT_FALSE(shelf.jobs.rbegin()->second.ended);
}

TEST_F(DaemonLives, PreviousJobIsForgottenAfterItsRetention) {
    rendezvous::DaemonLimits limits;
    limits.closed_retention = std::chrono::milliseconds(1500);
    DaemonHost daemon(loop, limits, 0, testing::with_shelf(shelf));
    Peer a(loop, daemon.port());
    a.say(join_of("job", "a", 1));
    ASSERT_TRUE(a.expect<Assign>());
    Report finished = running(RoundId{1});
    finished.report.state = NodeState::finished;
    a.say(finished);
    ASSERT_TRUE(a.expect<Closed>());
    Peer b(loop, daemon.port());
    b.say(join_of("job", "b", 1));
    ASSERT_TRUE(b.expect<Assign>());
    EXPECT_TRUE(loop.until([&] { return only_job().ended; }));
    EXPECT_FALSE(shelf.jobs.rbegin()->second.ended);
}

TEST_F(DaemonLives, DrainedJobIsBegunAnew) {
    const auto daemon = host();
    Peer a(loop, daemon->port());
    a.say(join_of("job", "a", 1));
    ASSERT_TRUE(a.expect<Assign>());
    Report report = running(RoundId{1});
    report.report.elastic = true;
    report.report.step = report.report.held_step = 5;
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

TEST_F(DaemonLives, JobThatAllNodesLeftIsBegunAnewAndOneThatLostThemContinues) {
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
    // The next daemon learns the same from the journal.
    ASSERT_TRUE(loop.until([&] { return only_job().entries.size() == 2; }));
    daemon = host();
    Peer b(loop, daemon->port());
    const auto assign = join(b, "b");
    ASSERT_TRUE(assign);
    EXPECT_EQ(shelf.jobs.size(), 2U) << "another life";
    EXPECT_GT(assign->assignment.round, RoundId{1});
    Peer late(loop, daemon->port());
    b.hang_up();  // If it comes back or is lost, it is the same job.
    Join back = join_of("job", "b", 1);
    back.policy.restarts_max = 3;
    late.say(back);
    ASSERT_TRUE(late.expect<Assign>());
    EXPECT_EQ(shelf.jobs.size(), 2U);
}

TEST_F(DaemonLives, DaemonServesOthersWhileItReadsAJobAndNodesWait) {
    journal::StoredJob story = testing::story_of_two_rounds().job();
    for (journal::Entry& entry : story.entries) {
        entry.wall_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                            std::chrono::system_clock::now().time_since_epoch())
                            .count();
    }
    shelf.jobs[story.key] = story;
    // Each entry takes longer than a slice, so other work runs between any two entries.
    std::size_t reads = 0;
    std::size_t turns = 0;
    const SteadyClock clock;
    shelf.on_read = [&] {
        EXPECT_EQ(turns, reads++);
        const Instant until = clock.now() + std::chrono::milliseconds(12);
        while (clock.now() < until) {
        }
        boost::asio::post(loop.io(), [&] { ++turns; });
    };
    const auto daemon = host();
    EXPECT_FALSE(daemon->has_logged("taken up"));
    Peer a(loop, daemon->port());
    Join join = join_of(story.key.id, "a", 2);
    join.node = "a-1";
    join.policy = testing::joined("a").policy;
    join.report = running(RoundId{2}).report;
    a.say(join);
    a.say(running(RoundId{2}));
    const std::optional<FromDaemon> answer = a.next();
    ASSERT_TRUE(answer);
    EXPECT_TRUE(std::holds_alternative<Alive>(*answer)) << testing::shown(answer);
    EXPECT_TRUE(daemon->has_logged("taken up"));
    EXPECT_GT(reads, story.entries.size());
}

}  // namespace
}  // namespace regroup::rendezvous
