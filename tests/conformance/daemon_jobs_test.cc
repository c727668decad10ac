// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include <gmock/gmock.h>

#include "daemon_harness.h"
#include "rendezvous/protocol/codec.h"
#include "tests/support/words.h"

namespace regroup::rendezvous {
namespace {

using std::chrono::milliseconds;
using testing::DaemonHost;
using ::testing::HasSubstr;
using testing::join_of;
using testing::Loop;
using testing::Peer;
using testing::running;
using testing::shown;

class DaemonJobs : public ::testing::Test {
   protected:
    explicit DaemonJobs(const DaemonLimits& limits = {}) : host(loop, limits) {}

    Peer joined(const Join& join) {
        Peer peer(loop, host.port());
        EXPECT_TRUE(peer.say(join));
        return peer;
    }

    /// Nodes a and b of `job`. A disconnected node is lost after `regroup_window`.
    static std::pair<Join, Join> pair_of(
        const std::string& job,
        Duration regroup_window = join_of("", "", 2).policy.regroup_window) {
        std::pair joins{join_of(job, "a", 2), join_of(job, "b", 2)};
        joins.first.policy.regroup_window = joins.second.policy.regroup_window = regroup_window;
        return joins;
    }

    /// Two nodes of `job`, told their round and running.
    struct Pair {
        Peer a;
        Peer b;
        RoundId round = RoundId::none;
    };
    Pair running_pair(const std::string& job) { return running_pair(pair_of(job)); }
    Pair running_pair(const std::pair<Join, Join>& joins) {
        Pair pair{joined(joins.first), joined(joins.second)};
        for (Peer* peer : {&pair.a, &pair.b}) {
            if (const auto assign = peer->expect<Assign>()) {
                pair.round = assign->assignment.round;
            }
            peer->say(running(pair.round));
            peer->expect<Alive>();
        }
        return pair;
    }

    static Report failed(RoundId round, int exit_code) {
        Report report = running(round);
        report.report.state = NodeState::stopped;
        report.report.failure.emplace();
        report.report.failure->node = "a";
        report.report.failure->exit_code = exit_code;
        return report;
    }
    static Report stopped(RoundId round) {
        Report report = running(round);
        report.report.state = NodeState::stopped;
        return report;
    }

    Loop loop;
    DaemonHost host;
};

TEST_F(DaemonJobs, JoinsFormARoundOfDenseRanksWithOneMaster) {
    Join b = join_of("job", "b", 2);
    b.offer.workers = 3;
    b.report.store_port = 40002;
    Peer peer_b = joined(b);
    Join a = join_of("job", "a", 2);
    a.report.store_port = 40001;
    Peer peer_a = joined(a);
    const auto to_a = peer_a.expect<Assign>();
    const auto to_b = peer_b.expect<Assign>();
    ASSERT_TRUE(to_a && to_b);
    EXPECT_EQ(to_a->assignment.group_rank, 0U);
    EXPECT_EQ(to_a->assignment.first_rank, 0U);
    EXPECT_EQ(to_b->assignment.group_rank, 1U);
    EXPECT_EQ(to_b->assignment.first_rank, 2U);
    for (const Assignment& assignment : {to_a->assignment, to_b->assignment}) {
        EXPECT_EQ(assignment.round, RoundId{1});
        EXPECT_EQ(assignment.world_size, 5U);
        EXPECT_EQ(assignment.group_world_size, 2U);
        EXPECT_EQ(assignment.master_addr, "127.0.0.1");
        EXPECT_EQ(assignment.master_port, 40001);
    }
}

TEST_F(DaemonJobs, ManyJobsShareOnePort) {
    std::vector<Peer> peers;
    for (int job = 0; job < 50; ++job) {
        for (const char* name : {"a", "b"}) {
            peers.push_back(joined(join_of("job" + std::to_string(job), name, 2)));
        }
    }
    for (Peer& peer : peers) {
        const auto assign = peer.expect<Assign>();
        ASSERT_TRUE(assign);
        EXPECT_EQ(assign->assignment.world_size, 4U);
        EXPECT_EQ(assign->assignment.round, RoundId{1});
    }
}

TEST_F(DaemonJobs, FailureOfOneNodeStopsTheOtherAndClosesTheJobForBoth) {
    Pair pair = running_pair("job");
    pair.a.say(failed(pair.round, 3));
    const auto stop = pair.b.expect<Stop>();
    ASSERT_TRUE(stop);
    EXPECT_EQ(stop->round, pair.round);
    EXPECT_THAT(describe(stop->reason), HasSubstr("exited with code 3"));
    pair.b.say(stopped(pair.round));
    for (Peer* peer : {&pair.a, &pair.b}) {
        std::optional<FromDaemon> message = peer->next();
        if (message && std::holds_alternative<Alive>(*message)) {
            message = peer->next();
        }
        ASSERT_TRUE(message && std::holds_alternative<Closed>(*message)) << shown(message);
        EXPECT_EQ(std::get<Closed>(*message).verdict.exit_code, 3);
    }
}

TEST_F(DaemonJobs, JoinByteByByteIsAJoin) {
    Peer slow(loop, host.port());
    const std::string frame =
        protocol::make_frame(protocol::encode(FromAgent(join_of("job", "slow", 1))));
    for (const char byte : frame) {
        ASSERT_TRUE(slow.send(std::string_view(&byte, 1)));
        loop.run_for(milliseconds(0));
    }
    EXPECT_TRUE(slow.expect<Assign>());
}

TEST_F(DaemonJobs, ManyMessagesInOnePacketAreAnsweredInTurn) {
    Pair pair = running_pair("job");
    const std::string frame =
        protocol::make_frame(protocol::encode(FromAgent(running(pair.round))));
    std::string packet;
    for (int i = 0; i < 20; ++i) {
        packet += frame;
    }
    pair.a.send(packet);
    for (int i = 0; i < 20; ++i) {
        ASSERT_TRUE(pair.a.expect<Alive>()) << i;
    }
}

// ---- Connections come and go; the node stays.

TEST_F(DaemonJobs, ReconnectionWithinTheLimitChangesNothing) {
    const Duration limit = std::chrono::seconds(3);
    Pair pair = running_pair(pair_of("job", limit));
    pair.a.hang_up();
    ASSERT_TRUE(loop.until([&] { return host.daemon().sessions_count() == 1; }));
    Join again = pair_of("job", limit).first;
    again.report = running(pair.round).report;
    Peer returned = joined(again);
    returned.say(running(pair.round));
    const auto alive = returned.expect<Alive>();
    ASSERT_TRUE(alive);
    EXPECT_EQ(alive->round, pair.round);
    // Longer than a suspicion lasts.
    loop.run_for(limit + milliseconds(500));
    pair.b.say(running(pair.round));
    const auto also_alive = pair.b.expect<Alive>();
    ASSERT_TRUE(also_alive);
    EXPECT_EQ(also_alive->round, pair.round);
}

TEST_F(DaemonJobs, NodeThatDoesNotReturnIsLost) {
    Pair pair = running_pair(pair_of("job", milliseconds(200)));
    pair.a.hang_up();
    const auto stop = pair.b.expect<Stop>();
    ASSERT_TRUE(stop);
    EXPECT_THAT(describe(stop->reason), HasSubstr("node a is lost"));
}

TEST_F(DaemonJobs, NodeThatLeavesIsGoneAtOnceAndGetsNoMoreAnswers) {
    Pair pair = running_pair("job");
    pair.a.say(Leave{"SIGTERM"});
    const auto stop = pair.b.expect<Stop>();
    ASSERT_TRUE(stop);
    EXPECT_THAT(describe(stop->reason), HasSubstr("left: SIGTERM"));
    const std::uint64_t answers = host.daemon().counters().messages_out;
    const std::uint64_t heard = host.daemon().counters().messages_in;
    pair.a.say(running(pair.round));
    pair.a.say(Leave{"SIGTERM"});
    ASSERT_TRUE(loop.until([&] { return host.daemon().counters().messages_in == heard + 2; }));
    EXPECT_EQ(host.daemon().counters().messages_out, answers);
}

TEST_F(DaemonJobs, ConnectionThatHasLeftDoesNotSpeakForTheNodeThatCameBack) {
    Pair pair = running_pair("job");
    pair.a.say(Leave{"SIGTERM"});
    ASSERT_TRUE(pair.b.expect<Stop>());
    const std::uint64_t heard = host.daemon().counters().messages_in;
    Peer back = joined(join_of("job", "a", 2));
    ASSERT_TRUE(loop.until([&] { return host.daemon().counters().messages_in == heard + 1; }));
    pair.b.say(stopped(pair.round));
    ASSERT_TRUE(pair.b.expect<Assign>());
    const auto assign = back.expect<Assign>();
    ASSERT_TRUE(assign);
    pair.a.say(Leave{"SIGTERM"});
    pair.a.hang_up();
    ASSERT_TRUE(loop.until([&] { return host.daemon().sessions_count() == 2; }));
    back.say(running(assign->assignment.round));
    EXPECT_TRUE(back.expect<Alive>());
}

TEST_F(DaemonJobs, NewerConnectionOfANodeTakesOver) {
    const Duration limit = milliseconds(200);
    Pair pair = running_pair(pair_of("job", limit));
    Join again = pair_of("job", limit).first;
    again.report = running(pair.round).report;
    Peer newer = joined(again);
    EXPECT_TRUE(pair.a.is_closed_by_peer());
    // The end of the old connection is not the end of the node, now or later.
    loop.run_for(limit + milliseconds(500));
    newer.say(running(pair.round));
    EXPECT_TRUE(newer.expect<Alive>());
    pair.b.say(running(pair.round));
    EXPECT_TRUE(pair.b.expect<Alive>());
}

TEST_F(DaemonJobs, MessagesOfASupersededConnectionAreIgnored) {
    Pair pair = running_pair("job");
    Join again = join_of("job", "a", 2);
    again.report = running(pair.round).report;
    // Both are there before the daemon looks at either.
    Peer newer(loop, host.port());
    ASSERT_TRUE(loop.until([&] { return host.daemon().sessions_count() == 3; }));
    newer.say(again);
    pair.a.say(Leave{"from the grave"});
    newer.say(running(pair.round));
    std::optional<FromDaemon> answer = newer.next();
    // In either order, the node is present in the end.
    ASSERT_TRUE(answer);
    EXPECT_TRUE(std::holds_alternative<Alive>(*answer) || std::holds_alternative<Stop>(*answer))
        << shown(answer);
}

TEST_F(DaemonJobs, FencedNodeJoinsAgainOnTheSameConnection) {
    Pair pair = running_pair(pair_of("job", milliseconds(200)));
    pair.a.hang_up();
    ASSERT_TRUE(pair.b.expect<Stop>());  // Lost by now.
    Peer late = joined(join_of("other", "x", 1));
    ASSERT_TRUE(late.expect<Assign>());
    Join again = join_of("other", "x", 1);
    again.report = stopped(RoundId{1}).report;
    late.say(again);
    EXPECT_TRUE(late.expect<Assign>());
}

// ---- Ends of jobs.

class DaemonJobsSoonForgotten : public DaemonJobs {
   protected:
    DaemonJobsSoonForgotten() : DaemonJobs(limits()) {}

    static DaemonLimits limits() {
        DaemonLimits result;
        result.closed_retention = std::chrono::seconds(3);
        return result;
    }
};

TEST_F(DaemonJobsSoonForgotten, ClosedJobTellsNodesOnTheirWayHowItEndedAndThenFreesItsId) {
    Peer only = joined(join_of("job", "a", 1));
    const auto assign = only.expect<Assign>();
    ASSERT_TRUE(assign);
    only.say(failed(assign->assignment.round, 7));
    ASSERT_TRUE(only.expect<Closed>());

    Join on_its_way = join_of("job", "b", 1);
    on_its_way.began_ago = std::chrono::minutes(1);
    Peer late = joined(on_its_way);
    const auto closed = late.expect<Closed>();
    ASSERT_TRUE(closed);
    EXPECT_TRUE(closed->missed);
    EXPECT_EQ(closed->verdict.exit_code, 7);
    EXPECT_THAT(describe(closed->verdict.reason), HasSubstr("exited with code 7"));

    loop.run_for(limits().closed_retention);
    Peer next = joined(join_of("job", "c", 1));
    const auto fresh = next.expect<Assign>();
    ASSERT_TRUE(fresh);
    EXPECT_EQ(fresh->assignment.round, RoundId{1});
    // The nodes that stayed connected belong to the old job.
    EXPECT_TRUE(late.is_closed_by_peer());
    next.say(running(RoundId{1}));
    EXPECT_TRUE(next.expect<Alive>());
}

TEST_F(DaemonJobs, NodeThatBeginsAfterTheEndOfAFailedJobBeginsItAnew) {
    for (const auto& [node, round] : {std::pair{"a", 1U}, std::pair{"b", 2U}, std::pair{"c", 3U}}) {
        Peer only = joined(join_of("job", node, 1));
        const auto assign = only.expect<Assign>();
        ASSERT_TRUE(assign) << node;
        EXPECT_EQ(assign->assignment.round, RoundId{round});
        EXPECT_EQ(assign->assignment.restart_count, 0U);
        only.say(failed(assign->assignment.round, 7));
        ASSERT_TRUE(only.expect<Closed>());
    }
    // Nodes of the ended attempts that come back hear of the end of theirs, and begin nothing.
    Join again = join_of("job", "b", 1);
    again.report = stopped(RoundId{2}).report;
    Peer former = joined(again);
    const auto closed = former.expect<Closed>();
    ASSERT_TRUE(closed);
    EXPECT_EQ(closed->verdict.exit_code, 7);
}

Report finished(RoundId round) {
    Report report = running(round);
    report.report.state = NodeState::finished;
    return report;
}

TEST_F(DaemonJobs, IdOfASuccessfulJobIsFreeAtOnceForNewNodes) {
    Pair old = running_pair("job");
    old.a.say(finished(old.round));
    old.b.say(finished(old.round));
    ASSERT_TRUE(old.a.expect<Alive>());
    for (Peer* peer : {&old.a, &old.b}) {
        const auto closed = peer->expect<Closed>();
        ASSERT_TRUE(closed);
        EXPECT_EQ(closed->verdict.outcome, Outcome::succeeded);
    }

    // Other nodes, and another policy too: it is another job.
    Peer next = joined(join_of("job", "c", 1));
    const auto fresh = next.expect<Assign>();
    ASSERT_TRUE(fresh);
    EXPECT_GT(fresh->assignment.round, old.round);
    EXPECT_EQ(fresh->assignment.reason, "1 node joined");
    EXPECT_EQ(fresh->assignment.restart_count, 0U);
    next.say(running(fresh->assignment.round));
    EXPECT_TRUE(next.expect<Alive>());

    // Nodes of the old job hear of its end, by round or by name, and do not disturb the new job.
    Join by_round = join_of("job", "d", 2);
    by_round.report.round = old.round;
    by_round.report.state = NodeState::finished;
    for (const Join& join : {by_round, join_of("job", "a", 2)}) {
        Peer back = joined(join);
        const auto closed = back.expect<Closed>();
        ASSERT_TRUE(closed);
        EXPECT_EQ(closed->verdict.outcome, Outcome::succeeded);
        EXPECT_TRUE(back.is_closed_by_peer());
    }
    next.say(running(fresh->assignment.round));
    EXPECT_TRUE(next.expect<Alive>());

    // The nodes of the new job come back to the new job.
    next.hang_up();
    Join again = join_of("job", "c", 1);
    again.report = running(fresh->assignment.round).report;
    Peer back = joined(again);
    back.say(finished(fresh->assignment.round));
    const auto closed = back.expect<Closed>();
    ASSERT_TRUE(closed);
    EXPECT_EQ(closed->verdict.outcome, Outcome::succeeded);
}

TEST_F(DaemonJobs, StandbyOfASuccessfulJobDoesNotBeginItAnew) {
    Join join = join_of("job", "a", 1);
    Peer only = joined(join);
    const auto assign = only.expect<Assign>();
    ASSERT_TRUE(assign);
    only.say(running(assign->assignment.round));
    ASSERT_TRUE(only.expect<Alive>());
    Peer standby = joined(join_of("job", "b", 1));
    ASSERT_TRUE(standby.expect<Waiting>());
    standby.hang_up();
    only.say(finished(assign->assignment.round));
    ASSERT_TRUE(only.expect<Closed>());
    Peer back = joined(join_of("job", "b", 1));
    EXPECT_TRUE(back.expect<Closed>());
}

TEST_F(DaemonJobs, JobWithoutNodesAcceptsAnotherPolicy) {
    Join wrong = join_of("job", "a", 2);
    wrong.offer.slot = 5;
    Peer refused = joined(wrong);
    const auto refusal = refused.expect<Refused>();
    ASSERT_TRUE(refusal);
    EXPECT_THAT(describe(refusal->reason), HasSubstr("--node-rank 5"));
    EXPECT_TRUE(refused.is_closed_by_peer());

    Peer right = joined(join_of("job", "a", 1));
    EXPECT_TRUE(right.expect<Assign>());
}

TEST_F(DaemonJobs, RefusedNodeBeginsNoJob) {
    Join wrong = join_of("job", "a", 2);
    wrong.offer.slot = 5;
    Peer refused = joined(wrong);
    ASSERT_TRUE(refused.expect<Refused>());

    Peer person(loop, host.port());
    Operate stop;
    stop.action = Operate::Action::stop;
    stop.job = "job";
    person.say(stop);
    const auto answer = person.expect<Operated>();
    ASSERT_TRUE(answer);
    EXPECT_FALSE(answer->done);
    EXPECT_THAT(answer->text, HasSubstr("there is no job job"));
}

TEST_F(DaemonJobs, NodeThatContradictsAnotherIsRefusedAndTheOtherStays) {
    Peer first = joined(join_of("job", "a", 2));
    Join other = join_of("job", "b", 2);
    other.policy.program = "evaluate";
    Peer second = joined(other);
    const auto refusal = second.expect<Refused>();
    ASSERT_TRUE(refusal);
    EXPECT_THAT(describe(refusal->reason), HasSubstr("evaluate here, train there"));
    EXPECT_TRUE(second.is_closed_by_peer());
    Peer third = joined(join_of("job", "b", 2));
    EXPECT_TRUE(third.expect<Assign>());
    const auto told = first.expect<Waiting>();
    ASSERT_TRUE(told);
    EXPECT_THAT(describe(told->detail), HasSubstr("node b contradicts node a"));
    EXPECT_TRUE(first.expect<Assign>());
}

TEST_F(DaemonJobs, StopTellsAllNodesOfAllJobsAndCallsBack) {
    Pair pair = running_pair("one");
    Peer waiting = joined(join_of("two", "a", 2));
    Peer silent(loop, host.port());
    ASSERT_TRUE(loop.until([&] { return host.daemon().sessions_count() == 4; }));
    bool done = false;
    host.daemon().stop("the operator", "maintenance", std::chrono::seconds(20),
                       [&] { done = true; });
    EXPECT_TRUE(loop.until([&] { return done; }));
    for (Peer* peer : {&pair.a, &pair.b, &waiting}) {
        const auto closed = peer->expect<Closed>();
        ASSERT_TRUE(closed);
        EXPECT_EQ(closed->verdict.outcome, Outcome::stopped);
        EXPECT_EQ(closed->verdict.author, "the operator");
        EXPECT_EQ(closed->verdict.reason, "maintenance");
    }
    Peer late(loop, host.port());
    EXPECT_FALSE(late.connected());
}

TEST_F(DaemonJobs, StopWithoutNodesCallsBack) {
    bool done = false;
    host.daemon().stop("the operator", "maintenance", std::chrono::seconds(20),
                       [&] { done = true; });
    EXPECT_TRUE(loop.until([&] { return done; }));
}

TEST_F(DaemonJobs, DestructionWithEverythingPendingIsSafe) {
    Pair pair = running_pair("one");
    Peer half(loop, host.port());
    half.send(std::string("\0\0", 2));
    Peer silent(loop, host.port());
    ASSERT_TRUE(loop.until([&] { return host.daemon().sessions_count() == 4; }));
    pair.a.say(running(pair.round));
    bool called = false;
    host.daemon().flush(milliseconds(5), [&] { called = true; });
    host.destroy();
    loop.run_for(milliseconds(50));
    EXPECT_TRUE(pair.b.is_closed_by_peer());
}

}  // namespace
}  // namespace regroup::rendezvous
