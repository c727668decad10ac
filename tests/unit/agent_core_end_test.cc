// SPDX-License-Identifier: Apache-2.0
//
// How an agent ends: by a verdict, a signal, the join timeout, or because it has finished.
#include "agent/text/cause_text.h"
#include "agent_core_fixture.h"

namespace regroup::agent {
namespace {

using namespace rendezvous;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

TEST_F(AgentCoreTest, ClosedEndsTheAgentWithTheVerdictOnceTheWorkersAreGone) {
    in_round(1);
    Verdict verdict;
    verdict.exit_code = 7;
    verdict.reason = "enough";
    hear(Closed{verdict});
    EXPECT_FALSE(quit().has_value());
    EXPECT_TRUE(core.leaving());
    both_obey(1);
    expect_exit(7);
    EXPECT_EQ(quit()->verdict, verdict);
    EXPECT_TRUE(core.done());
    effects.clear();
    assign(9);
    feed(LinkUp{});
    pass(minutes(60));
    EXPECT_TRUE(effects.empty());
}

TEST_F(AgentCoreTest, EndOfAJobThatTheNodeMissedIsNotItsOwn) {
    for (const auto outcome : {Outcome::succeeded, Outcome::failed}) {
        AgentCore late(config_of_two_workers(), now);
        static_cast<void>(late.step(now, LinkUp{}));
        Verdict verdict;
        verdict.outcome = outcome;
        verdict.exit_code = outcome == Outcome::succeeded ? 0 : 9;
        const AgentEffects told = late.step(now, Received{Closed{verdict, /*missed=*/true}});
        ASSERT_TRUE(late.done());
        const auto* quit = std::get_if<Quit>(&told.back());
        ASSERT_NE(quit, nullptr);
        EXPECT_EQ(quit->exit_code, kExitNoRendezvous);
        EXPECT_EQ(quit->reason.cause, QuitCause::missed);
    }
}

TEST_F(AgentCoreTest, NodeThatWasInARoundHasMissedNothing) {
    in_round(1);
    Verdict verdict;
    verdict.exit_code = 7;
    hear(Closed{verdict, /*missed=*/true});
    both_obey(1);
    expect_exit(7);
    EXPECT_EQ(quit()->reason.cause, QuitCause::job_closed);
}

TEST_F(AgentCoreTest, EachJoinSaysHowLongAgoTheLauncherBegan) {
    pass(seconds(5));
    feed(LinkDown{});
    effects.clear();
    feed(LinkUp{});
    const auto joins = sent<rendezvous::Join>();
    ASSERT_EQ(joins.size(), 1U);
    EXPECT_GE(joins.front().began_ago, seconds(5));
}

TEST_F(AgentCoreTest, OnlyAVerdictOfSuccessEndsTheAgentWithCodeZero) {
    Verdict verdict;
    verdict.outcome = Outcome::failed;
    verdict.exit_code = 0;
    hear(Closed{verdict});
    expect_exit(kExitJobFailed);
}

TEST_F(AgentCoreTest, RefusalEndsTheAgentAsAUsageErrorOrAsNoRendezvous) {
    hear(Refused{Errc::invalid_argument, "node b contradicts node a"});
    expect_quit(kExitUsage, QuitCause::refused);
    EXPECT_EQ(text_of(quit()->reason.why), "node b contradicts node a");
}

TEST_F(AgentCoreTest, RefusalByAnOverloadedDaemonIsRetriedUntilTheJoinTimeout) {
    for (int attempt = 0; attempt < 3; ++attempt) {
        hear(Refused{Errc::overloaded, "full"});
        EXPECT_FALSE(quit().has_value());
        EXPECT_FALSE(core.leaving());
        feed(LinkDown{});
        pass(seconds(1));
        effects.clear();
        feed(LinkUp{});
        ASSERT_EQ(all<SendToDaemon>().size(), 1U);
        EXPECT_TRUE(std::holds_alternative<Join>(all<SendToDaemon>()[0].message));
    }
    hear(Refused{Errc::overloaded, "still full"});
    pass(config_of_two_workers().join_timeout);
    expect_quit(kExitNoRendezvous, QuitCause::refused);
    EXPECT_EQ(text_of(quit()->reason.why), "still full");
}

TEST_F(AgentCoreTest, WorkersGoOnWhenAnotherDaemonRefusesTheNode) {
    in_round(1);
    for (int attempt = 0; attempt < 3; ++attempt) {
        reconnect();
        hear(Refused{Errc::invalid_argument, "this daemon speaks version 2 of the protocol"});
        EXPECT_FALSE(quit().has_value());
        EXPECT_FALSE(core.leaving());
        EXPECT_TRUE(all<SignalWorkers>().empty());
        pass(seconds(1));
    }
    feed(LinkDown{});
    effects.clear();
    feed(LinkUp{});
    ASSERT_EQ(all<SendToDaemon>().size(), 1U);
    EXPECT_TRUE(std::holds_alternative<Join>(all<SendToDaemon>()[0].message));
    pass_answered(minutes(60));
    EXPECT_FALSE(core.leaving());
    EXPECT_TRUE(core.has_workers());
}

TEST_F(AgentCoreTest, FinishedNodeThatIsRefusedAgainAndAgainGivesUpAfterTheJoinTimeout) {
    in_round(1);
    both_succeed(1);
    const Instant end = now + config_of_two_workers().join_timeout + seconds(10);
    while (!quit() && now < end) {
        reconnect();
        hear(Refused{Errc::closed, "the job belongs to another launcher"});
        pass(seconds(1));
    }
    ASSERT_TRUE(quit().has_value());
}

TEST_F(AgentCoreTest, RefusalEndsTheNodeOnceItsWorkersHaveFailed) {
    in_round(1);
    reconnect();
    hear(Refused{Errc::invalid_argument, "another version"});
    EXPECT_FALSE(quit().has_value());
    exits(1, 0, crash(0, SIGSEGV));
    exits(1, 1, crash(1, SIGSEGV));
    reconnect();
    hear(Refused{Errc::invalid_argument, "another version"});
    expect_exit(kExitUsage);
}

TEST_F(AgentCoreTest, NodeThatTheOverloadedDaemonTakesInLaterRunsItsRound) {
    hear(Refused{Errc::overloaded, "full"});
    reconnect();
    in_round(1);
    pass_answered(minutes(60));
    EXPECT_FALSE(core.leaving());
}

TEST_F(AgentCoreTest, SignalMakesTheNodeLeaveAndEndByThatSignal) {
    in_round(1);
    gets_signal(SIGTERM);
    EXPECT_EQ(one(all<SendLeave>()).reason.cause, QuitCause::asked);
    EXPECT_EQ(all<SignalWorkers>().size(), 1U);
    both_obey(1);
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->signal, SIGTERM);
    EXPECT_EQ(quit()->exit_code, 128 + SIGTERM);
}

TEST_F(AgentCoreTest, TrainingNodeNeedsNoDaemon) {
    in_round(1);
    feed(LinkDown{});
    for (std::uint64_t step = 1; step <= 20; ++step) {
        pass(minutes(6));
        feed(StepsCommitted{step});
    }
    EXPECT_FALSE(core.leaving());
    pass(minutes(9));
    both_succeed(1);
    pass(minutes(9));
    EXPECT_FALSE(quit().has_value()) << "the end of the workers has its own time to be told";
    pass(minutes(2));
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->exit_code, 0) << "no other node has a part in the round";
}

TEST_F(AgentCoreTest, NodeThatStopsCommittingStepsWithoutADaemonGivesUp) {
    in_round(1);
    feed(StepsCommitted{5});
    feed(LinkDown{});
    feed(StepsCommitted{5});
    pass(minutes(10));
    EXPECT_TRUE(core.leaving());
    both_obey(1);
    expect_quit(kExitNoRendezvous, QuitCause::no_rendezvous);
}

TEST_F(AgentCoreTest, SecondSignalShortensTheGraceToNothing) {
    for (const auto& [signal, wait] :
         {std::pair(SIGINT, milliseconds(200)), {SIGTERM, seconds(1)}}) {
        restart();
        in_round(1);
        gets_signal(signal);
        pass(wait);
        gets_signal(signal);
        effects.clear();
        pass(Duration::zero());
        EXPECT_TRUE(one(all<SignalWorkers>()).force());
        EXPECT_TRUE(one(all<SignalWorkers>()).hurried);
    }
}

TEST_F(AgentCoreTest, SignalsThatArriveTogetherCountOnce) {
    in_round(1);
    gets_signal(SIGTERM);
    effects.clear();
    gets_signal(SIGTERM);  // timeout(1)
    pass(milliseconds(300));
    gets_signal(SIGHUP);  // systemd
    pass(milliseconds(699));
    gets_signal(SIGTERM);
    pass(seconds(5));
    EXPECT_TRUE(all<SignalWorkers>().empty());
}

TEST_F(AgentCoreTest, FirstSignalOfANodeThatIsLeavingLeavesItsWorkersTheirTime) {
    in_round(1);
    hear(Closed{Verdict{}});
    pass(seconds(2));
    effects.clear();
    gets_signal(SIGTERM);
    pass(seconds(2));
    EXPECT_TRUE(all<SignalWorkers>().empty());
    gets_signal(SIGTERM);
    pass(Duration::zero());
    EXPECT_TRUE(one(all<SignalWorkers>()).hurried);
}

TEST_F(AgentCoreTest, LeavingNodeRepeatsItsLeaveAndNeverJoinsAgain) {
    in_round(1);
    gets_signal(SIGTERM);
    effects.clear();
    pass(seconds(2));
    EXPECT_EQ(all<SendLeave>().size(), 2U);  // The first may have been lost.
    EXPECT_TRUE(sent<Report>().empty());
    reconnect();
    hear(Fenced{"unknown"});
    assign(2);
    hear(Stop{RoundId{1}, "why"});
    both_obey(1);
    EXPECT_TRUE(sent<Join>().empty());
    EXPECT_TRUE(sent<Report>().empty());
    EXPECT_TRUE(all<LaunchWorkers>().empty());
    EXPECT_TRUE(quit().has_value());
}

TEST_F(AgentCoreTest, DaemonGetsTimeToCloseTheJobBeforeTheNodeGivesUp) {
    EXPECT_EQ(last(sent<Join>()).offer.join_timeout, minutes(10));
    in_round(1);
    hear(Stop{RoundId{1}, "why"});
    both_obey(1);
    pass_answered(minutes(10) + milliseconds(999));
    EXPECT_FALSE(quit().has_value());
    pass_answered(milliseconds(1));
    expect_exit(kExitNoRendezvous);
}

TEST_F(AgentCoreTest, NodeWithoutARoundLeavesAfterTheJoinTimeout) {
    pass_answered(minutes(10) - milliseconds(1));
    EXPECT_FALSE(quit().has_value());
    pass(milliseconds(1));
    expect_quit(kExitNoRendezvous, QuitCause::no_round);
    EXPECT_EQ(quit()->reason.limit, minutes(10));
    EXPECT_EQ(all<SendLeave>().size(), 1U);
}

TEST_F(AgentCoreTest, JoinTimeoutBeginsAnewWithEveryDisconnection) {
    in_round(1);
    for (int i = 0; i < 5; ++i) {
        feed(LinkDown{});
        pass(minutes(9));
        feed(LinkUp{});
        pass_answered(seconds(5));
    }
    EXPECT_FALSE(core.leaving());
}

TEST_F(AgentCoreTest, JoinTimeoutDoesNotRunWhileAConnectedNodeStopsItsWorkers) {
    in_round(1);
    feed(LinkDown{});
    pass(minutes(10) - seconds(1));
    feed(LinkUp{});
    hear(Stop{RoundId{1}, "round 1 is over"});
    pass_answered(seconds(5));
    EXPECT_FALSE(core.leaving());
    both_obey(1);
    pass_answered(minutes(9));
    EXPECT_FALSE(core.leaving());
}

TEST_F(AgentCoreTest, StandbyWaitsWithoutALimit) {
    Waiting waiting;
    waiting.standby = true;
    hear(waiting);
    pass_answered(minutes(120));
    EXPECT_FALSE(core.leaving());
    waiting.standby = false;  // The round is over, but there is still no place.
    hear(waiting);
    pass_answered(minutes(10));
    EXPECT_TRUE(core.leaving());
}

TEST_F(AgentCoreTest, FinishedNodeWaitsForTheOthersWithoutALimit) {
    in_round(1);
    both_succeed(1);
    pass_answered(minutes(600));
    EXPECT_FALSE(core.leaving());
}

TEST_F(AgentCoreTest, VerdictIsKeptEvenIfWorkersResistSigkill) {
    in_round(1);
    Verdict verdict;
    verdict.exit_code = 7;
    hear(Closed{verdict});
    pass(minutes(1));
    expect_exit(7);
    EXPECT_EQ(quit()->verdict, verdict);
    EXPECT_EQ(quit()->reason.cause, QuitCause::workers_unkillable);
}

// ---- Departure.

TEST_F(AgentCoreTest, FinishedNodeEndsWhenItIsDismissed) {
    in_round(1);
    both_succeed(1);
    effects.clear();
    hear(Dismissed{RoundId{1}});
    EXPECT_EQ(one(all<Quit>()).exit_code, 0);
    EXPECT_EQ(one(all<Quit>()).signal, 0);
    EXPECT_TRUE(core.done());
}

TEST_F(AgentCoreTest, DismissalForAnotherRoundOrBeforeTheEndIsIgnored) {
    in_round(2);
    hear(Dismissed{RoundId{2}});
    both_succeed(2);
    hear(Dismissed{RoundId{1}});
    EXPECT_TRUE(all<Quit>().empty());
    EXPECT_FALSE(core.done());
}

TEST_F(AgentCoreTest, NodeThatServesTheRendezvousStaysUntilTheEnd) {
    AgentConfig config = config_of_two_workers();
    config.stays_until_closed = true;
    restart(config);
    in_round(1);
    both_succeed(1);
    hear(Dismissed{RoundId{1}});
    EXPECT_FALSE(core.done());
}

// A daemon without memory would end the round of its predecessor, and repeat what has finished.
TEST_F(AgentCoreTest, NodeServesTheRendezvousInPlaceOfALostDaemonUnlessItsWorkersWouldSuffer) {
    EXPECT_FALSE(core.may_serve_rendezvous(false)) << "a daemon is there";
    feed(LinkDown{});
    EXPECT_TRUE(core.may_serve_rendezvous(false)) << "no round yet";
    feed(LinkUp{});
    in_round(1);
    feed(LinkDown{});
    EXPECT_FALSE(core.may_serve_rendezvous(false)) << "the workers train";
    EXPECT_TRUE(core.may_serve_rendezvous(true));
    exits(1, 0, crash(0, SIGSEGV));
    EXPECT_FALSE(core.may_serve_rendezvous(false)) << "a worker is left";
    exits(1, 1);
    EXPECT_TRUE(core.may_serve_rendezvous(false)) << "the round is over";
    feed(LinkUp{});
    in_round(2);
    feed(LinkDown{});
    both_succeed(2);
    EXPECT_FALSE(core.may_serve_rendezvous(false)) << "the workers have finished";
    EXPECT_TRUE(core.may_serve_rendezvous(true));
}

TEST_F(AgentCoreTest, NodeServesTheRendezvousWhileItsWorkersTrainIfAMemberIsLostWithTheDaemon) {
    Assignment assignment;
    assignment.round = RoundId{1};
    assignment.group_rank = 1;
    assignment.member_serves = true;
    hear(Assign{assignment});
    EXPECT_FALSE(core.may_serve_rendezvous(false)) << "a daemon is there";
    feed(LinkDown{});
    EXPECT_TRUE(core.may_serve_rendezvous(false));
    both_succeed(1);
    EXPECT_FALSE(core.may_serve_rendezvous(false)) << "the workers have finished";
}

TEST_F(AgentCoreTest, NodeThatHasToServeTheRendezvousLaterStaysUntilTheEnd) {
    feed(LinkDown{});
    feed(RendezvousServed{.ends_with_daemon = true});
    effects.clear();
    feed(LinkUp{});
    const auto joins = sent<Join>();
    ASSERT_EQ(joins.size(), 1U);
    EXPECT_TRUE(joins[0].offer.hosts_rendezvous);
    EXPECT_TRUE(joins[0].offer.ends_with_daemon);
    in_round(1);
    both_succeed(1);
    hear(Dismissed{RoundId{1}});
    EXPECT_FALSE(core.done());
}

TEST_F(AgentCoreTest, WorkersGetTheSignalThatTheNodeGot) {
    in_round(1);
    gets_signal(SIGINT);
    EXPECT_EQ(one(all<SignalWorkers>()).signal, SIGINT);
    // An end by the signal that we sent is no failure.
    exits(1, 0, crash(0, SIGINT));
    exits(1, 1, crash(1, SIGINT));
    EXPECT_FALSE(core.report().failure.has_value());
}

// Its shell was ended by a signal that was passed on; the program below the shell goes on.
TEST_F(AgentCoreTest, WhatIsLeftOfAFailedWorkerHasTheGraceTime) {
    in_round(1);
    feed(WorkerEnding{RoundId{1}, 0, crash(0, SIGUSR1)});
    EXPECT_EQ(one(sent<Report>()).report.failure, crash(0, SIGUSR1));
    EXPECT_EQ(one(all<SignalWorkers>()).signal, SIGTERM);
    EXPECT_EQ(one(all<SignalWorkers>()).local_ranks, (std::vector<std::uint32_t>{1}));
    exits(1, 1, crash(1, SIGTERM));
    pass_answered(seconds(10));
    ASSERT_EQ(all<SignalWorkers>().size(), 2U);
    EXPECT_EQ(all<SignalWorkers>()[1].signal, SIGKILL);
    EXPECT_EQ(all<SignalWorkers>()[1].local_ranks, (std::vector<std::uint32_t>{0}));
    exits(1, 0, crash(0, SIGUSR1));
    EXPECT_EQ(core.report().state, NodeState::stopped);
    EXPECT_EQ(core.report().failure, crash(0, SIGUSR1));
}

TEST_F(AgentCoreTest, WhatIsLeftOfAWorkerThatHadToEndGetsNoMoreTime) {
    in_round(1);
    hear(Stop{RoundId{1}, "a peer is lost"});
    pass_answered(seconds(6));
    feed(WorkerEnding{RoundId{1}, 0, crash(0, SIGTERM)});
    exits(1, 1, crash(1, SIGTERM));
    pass_answered(seconds(4));
    ASSERT_EQ(all<SignalWorkers>().size(), 2U);
    EXPECT_EQ(all<SignalWorkers>()[1].signal, SIGKILL);
    exits(1, 0, crash(0, SIGTERM));
    EXPECT_FALSE(core.report().failure.has_value());
}

}  // namespace
}  // namespace regroup::agent
