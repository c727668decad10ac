// SPDX-License-Identifier: Apache-2.0
//
// The promises of AgentCore's header, one by one.
#include "agent/agent_core.h"

#include <algorithm>
#include <csignal>

#include <gtest/gtest.h>

namespace regroup::agent {
namespace {

using namespace rendezvous;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr std::uint16_t kPort = 4000;

AgentConfig config_of_two_workers() {
    AgentConfig config;
    config.job = "test";
    config.node = "a#1";
    config.offer.name = "a";
    config.offer.workers = 2;
    config.policy.heartbeat_timeout = seconds(3);
    config.policy.shutdown_timeout = seconds(10);
    config.join_timeout = minutes(10);
    return config;
}

WorkerFailure crash(std::uint32_t local_rank, int signal = SIGSEGV) {
    WorkerFailure failure;
    failure.local_rank = local_rank;
    failure.node = "a";
    failure.signal = signal;
    return failure;
}

WorkerFailure error(std::uint32_t local_rank) {
    WorkerFailure failure;
    failure.local_rank = local_rank;
    failure.node = "a";
    failure.exit_code = 1;
    return failure;
}

// An agent with two workers, connected, in a round if the test begins with `in_round`.
class AgentCoreTest : public testing::Test {
   protected:
    AgentCoreTest() : core(config_of_two_workers(), now) {
        feed(StoreOffered{kPort});
        feed(LinkUp{});
    }

    void feed(const AgentEvent& event) { keep(core.step(now, event)); }
    void hear(const FromDaemon& message) { feed(Received{message}); }
    void assign(std::uint64_t round, std::uint32_t group_rank = 1) {
        Assignment assignment;
        assignment.round = RoundId{round};
        assignment.group_rank = group_rank;
        assignment.master_port = group_rank == 0 ? core.report().store_port : 9000;
        hear(Assign{assignment});
    }
    void in_round(std::uint64_t round) {
        assign(round);
        ASSERT_TRUE(launched(round));
        effects.clear();
    }
    void exits(std::uint64_t round, std::uint32_t local_rank,
               std::optional<WorkerFailure> failure = std::nullopt) {
        feed(WorkerExited{RoundId{round}, local_rank, std::move(failure)});
    }
    // Both workers end as SIGTERM makes them.
    void both_obey(std::uint64_t round) {
        exits(round, 0, crash(0, SIGTERM));
        exits(round, 1, crash(1, SIGTERM));
    }
    // Time passes, and the daemon answers nothing.
    void pass(Duration span) {
        const Instant end = now + span;
        while (core.next_deadline() <= end) {
            now = std::max(now, core.next_deadline());
            keep(core.advance(now));
        }
        now = end;
    }
    // Time passes, and the daemon answers every heartbeat.
    void pass_answered(Duration span) {
        for (const Instant end = now + span; now < end;) {
            pass(std::min<Duration>(seconds(1), end - now));
            hear(Alive{});
        }
    }
    void keep(AgentEffects more) {
        for (AgentEffect& effect : more) {
            effects.push_back(std::move(effect));
        }
    }

    template <class Effect>
    [[nodiscard]] std::vector<Effect> all() const {
        std::vector<Effect> result;
        for (const AgentEffect& effect : effects) {
            if (const auto* one = std::get_if<Effect>(&effect)) {
                result.push_back(*one);
            }
        }
        return result;
    }
    template <class Message>
    [[nodiscard]] std::vector<Message> sent() const {
        std::vector<Message> result;
        for (const SendToDaemon& send : all<SendToDaemon>()) {
            if (const auto* one = std::get_if<Message>(&send.message)) {
                result.push_back(*one);
            }
        }
        return result;
    }
    [[nodiscard]] bool launched(std::uint64_t round) const {
        const auto launches = all<LaunchWorkers>();
        return !launches.empty() && launches.back().assignment.round == RoundId{round};
    }
    [[nodiscard]] std::optional<Quit> quit() const {
        const auto quits = all<Quit>();
        return quits.empty() ? std::nullopt : std::optional(quits.back());
    }

    Instant now = Instant{} + std::chrono::hours(1);
    AgentCore core;
    AgentEffects effects;
};

// ---- Joining and heartbeats.

TEST_F(AgentCoreTest, JoinIsTheFirstWordOnEveryConnection) {
    ASSERT_EQ(sent<Join>().size(), 1U);
    EXPECT_EQ(sent<Join>()[0].node, "a#1");
    EXPECT_EQ(sent<Join>()[0].report.store_port, kPort);
    in_round(1);
    feed(LinkDown{});
    feed(LinkUp{});
    ASSERT_EQ(sent<Join>().size(), 1U);
    EXPECT_EQ(sent<Join>()[0].report.round, RoundId{1});
    EXPECT_EQ(sent<Join>()[0].report.state, NodeState::running);
}

TEST_F(AgentCoreTest, ReportsThreeTimesPerHeartbeatTimeout) {
    effects.clear();
    pass_answered(seconds(9));
    EXPECT_EQ(sent<Report>().size(), 9U);
}

TEST_F(AgentCoreTest, SaysNothingWhileThereIsNoConnection) {
    feed(LinkDown{});
    effects.clear();
    pass(seconds(60));
    EXPECT_TRUE(effects.empty());
}

TEST_F(AgentCoreTest, ADaemonThatIsSilentForTheTimeoutIsGivenANewConnection) {
    effects.clear();
    pass(seconds(3) - Duration(1));
    EXPECT_TRUE(all<DropLink>().empty());
    pass(Duration(1));
    EXPECT_EQ(all<DropLink>().size(), 1U);
    pass(seconds(30));
    EXPECT_EQ(all<DropLink>().size(), 1U);
}

TEST_F(AgentCoreTest, ANewStoreSocketIsToldAtOnceWhileTheNodeWaits) {
    effects.clear();
    feed(StoreOffered{4001});
    ASSERT_EQ(sent<Report>().size(), 1U);
    EXPECT_EQ(sent<Report>()[0].report.store_port, 4001);
    feed(StoreOffered{4001});
    EXPECT_EQ(sent<Report>().size(), 1U);
    in_round(1);
    feed(StoreOffered{4002});  // The workers' end will be reported in good time.
    EXPECT_TRUE(sent<Report>().empty());
}

// ---- Running a round.

TEST_F(AgentCoreTest, LaunchesWhatItIsAssignedAndReportsFinishedWhenAllSucceed) {
    in_round(1);
    EXPECT_EQ(core.report().state, NodeState::running);
    exits(1, 0);
    EXPECT_EQ(core.report().state, NodeState::running);
    exits(1, 1);
    ASSERT_EQ(sent<Report>().size(), 1U);
    EXPECT_EQ(sent<Report>()[0].report.state, NodeState::finished);
    EXPECT_FALSE(sent<Report>()[0].report.failure.has_value());
    EXPECT_FALSE(core.has_workers());
}

TEST_F(AgentCoreTest, ARoundIsLaunchedOnceHoweverOftenItIsAssigned) {
    in_round(1);
    assign(1);
    assign(1);
    EXPECT_TRUE(all<LaunchWorkers>().empty());
    both_obey(1);
    assign(1);
    EXPECT_TRUE(all<LaunchWorkers>().empty());
}

TEST_F(AgentCoreTest, OlderRoundsAreNeverLaunched) {
    in_round(5);
    exits(5, 0);
    exits(5, 1);
    assign(4);
    EXPECT_TRUE(all<LaunchWorkers>().empty());
}

TEST_F(AgentCoreTest, NewerRoundWaitsUntilTheLastWorkerOfTheOlderOneIsGone) {
    in_round(1);
    assign(2);
    EXPECT_TRUE(all<LaunchWorkers>().empty());
    ASSERT_EQ(all<SignalWorkers>().size(), 1U);
    EXPECT_EQ(all<SignalWorkers>()[0].round, RoundId{1});
    EXPECT_FALSE(all<SignalWorkers>()[0].force());
    exits(1, 0, crash(0, SIGTERM));
    EXPECT_TRUE(all<LaunchWorkers>().empty());
    exits(1, 1, crash(1, SIGTERM));
    EXPECT_TRUE(launched(2));
    EXPECT_FALSE(core.report().failure.has_value());
}

TEST_F(AgentCoreTest, OfSeveralAssignmentsTheNewestIsLaunched) {
    in_round(1);
    assign(3);
    assign(2);
    both_obey(1);
    EXPECT_TRUE(launched(3));
}

TEST_F(AgentCoreTest, GroupRankZeroDoesNotLaunchARoundWhoseStoreIsNotOpen) {
    effects.clear();
    Assignment assignment;
    assignment.round = RoundId{1};
    assignment.group_rank = 0;
    assignment.master_port = kPort + 1;
    hear(Assign{assignment});
    EXPECT_TRUE(all<LaunchWorkers>().empty());
    ASSERT_EQ(sent<Report>().size(), 1U);  // So that the daemon forms another one.
    EXPECT_EQ(sent<Report>()[0].report.round, RoundId{1});
    EXPECT_EQ(sent<Report>()[0].report.state, NodeState::stopped);
    EXPECT_EQ(sent<Report>()[0].report.store_port, kPort);
}

// ---- Failures.

TEST_F(AgentCoreTest, FirstFailureIsReportedAtOnceAndStopsTheOthers) {
    in_round(1);
    exits(1, 1, crash(1));
    ASSERT_EQ(sent<Report>().size(), 1U);
    EXPECT_EQ(sent<Report>()[0].report.state, NodeState::stopping);
    EXPECT_EQ(sent<Report>()[0].report.failure, crash(1));
    EXPECT_EQ(all<SignalWorkers>().size(), 1U);
    exits(1, 0, crash(0, SIGTERM));
    ASSERT_EQ(sent<Report>().size(), 2U);
    EXPECT_EQ(sent<Report>()[1].report.state, NodeState::stopped);
    EXPECT_EQ(sent<Report>()[1].report.failure, crash(1));
}

TEST_F(AgentCoreTest, EchoesOfOurOwnStoppingAreNoFailures) {
    in_round(1);
    hear(Stop{RoundId{1}, "node c joined"});
    exits(1, 0, error(0));
    exits(1, 1, crash(1, SIGTERM));
    EXPECT_FALSE(core.report().failure.has_value());
    EXPECT_EQ(core.report().state, NodeState::stopped);
}

TEST_F(AgentCoreTest, SigkillIsAnEchoOnlyAfterWeSentIt) {
    in_round(1);
    hear(Stop{RoundId{1}, "rank 3 on b exited with code 1"});
    exits(1, 0, crash(0, SIGKILL));  // Nobody here sent that: it explains the stop.
    EXPECT_EQ(core.report().failure, crash(0, SIGKILL));
    pass_answered(seconds(11));
    exits(1, 1, crash(1, SIGKILL));
    EXPECT_EQ(core.report().failure, crash(0, SIGKILL));
}

TEST_F(AgentCoreTest, ACrashThatCameToLightLaterOutranksTheErrorThatItCaused) {
    in_round(1);
    exits(1, 0, error(0));
    exits(1, 1, crash(1));
    EXPECT_EQ(core.report().failure, crash(1));
}

TEST_F(AgentCoreTest, WhatOldWorkersDoIsNeverTheFailureOfANewerRound) {
    in_round(1);
    hear(Stop{RoundId{2}, "over before it began"});  // Round 2 was never heard of here.
    EXPECT_EQ(core.report().round, RoundId{2});
    exits(1, 0, crash(0));
    EXPECT_FALSE(core.report().failure.has_value());
    exits(1, 1, crash(1));
    EXPECT_FALSE(core.report().failure.has_value());
    EXPECT_EQ(core.report().state, NodeState::stopped);
}

TEST_F(AgentCoreTest, ExitsOfAnotherRoundOrTwiceAreIgnored) {
    in_round(2);
    exits(1, 0, crash(0));
    EXPECT_EQ(core.report().state, NodeState::running);
    exits(2, 0);
    exits(2, 0, crash(0));
    EXPECT_EQ(core.report().state, NodeState::running);
    EXPECT_FALSE(core.report().failure.has_value());
}

TEST_F(AgentCoreTest, NewRoundForgetsTheOldFailure) {
    in_round(1);
    exits(1, 0, crash(0));
    exits(1, 1, crash(1, SIGTERM));
    assign(2);
    EXPECT_FALSE(core.report().failure.has_value());
}

// ---- Stopping.

TEST_F(AgentCoreTest, ForceFollowsTheRequestExactlyAfterTheShutdownTimeout) {
    in_round(1);
    hear(Stop{RoundId{1}, "why"});
    effects.clear();
    pass_answered(seconds(10) - milliseconds(1));
    EXPECT_TRUE(all<SignalWorkers>().empty());
    pass_answered(milliseconds(1));
    ASSERT_EQ(all<SignalWorkers>().size(), 1U);
    EXPECT_TRUE(all<SignalWorkers>()[0].force());
}

TEST_F(AgentCoreTest, WorkersThatResistSigkillEndTheAgentWithAnExplanation) {
    in_round(1);
    hear(Stop{RoundId{1}, "why"});
    pass_answered(seconds(10) + seconds(10));
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->exit_code, kExitJobFailed);
    EXPECT_EQ(quit()->reason,
              "2 worker(s) did not end even after SIGKILL; they are probably stuck in the kernel");
    EXPECT_GE(all<SignalWorkers>().size(), 10U);  // It did not try only once.
    EXPECT_TRUE(core.done());
    EXPECT_EQ(sent<Leave>().size(), 1U);
}

TEST_F(AgentCoreTest, StopIsAnsweredWithTheTruthWhenThereIsNothingToStop) {
    effects.clear();
    hear(Stop{RoundId{4}, "over before it began"});
    ASSERT_EQ(sent<Report>().size(), 1U);
    EXPECT_EQ(sent<Report>()[0].report.round, RoundId{4});
    EXPECT_EQ(sent<Report>()[0].report.state, NodeState::stopped);
    assign(4);  // The assignment that the stop had overtaken.
    EXPECT_TRUE(all<LaunchWorkers>().empty());
    assign(5);
    EXPECT_TRUE(launched(5));
}

TEST_F(AgentCoreTest, StopOfARoundThatIsWaitingForItsTurnPreventsIt) {
    in_round(1);
    assign(2);
    hear(Stop{RoundId{2}, "why"});
    both_obey(1);
    EXPECT_TRUE(all<LaunchWorkers>().empty());
    EXPECT_EQ(core.report().round, RoundId{2});
    EXPECT_EQ(core.report().state, NodeState::stopped);
}

TEST_F(AgentCoreTest, StopOfAnOlderRoundStopsNothing) {
    in_round(3);
    hear(Stop{RoundId{2}, "why"});
    EXPECT_EQ(core.report().state, NodeState::running);
    EXPECT_TRUE(all<SignalWorkers>().empty());
}

TEST_F(AgentCoreTest, FencedNodeEndsItsWorkersAndThenJoinsAgain) {
    in_round(1);
    hear(Fenced{"given up as lost"});
    EXPECT_EQ(all<SignalWorkers>().size(), 1U);
    EXPECT_TRUE(sent<Join>().empty());
    both_obey(1);
    ASSERT_EQ(sent<Join>().size(), 1U);
    EXPECT_EQ(sent<Join>()[0].report.state, NodeState::stopped);
}

TEST_F(AgentCoreTest, ARoundThatWasFencedIsNeverLaunchedAfterwards) {
    in_round(1);
    assign(2);
    hear(Fenced{"given up as lost"});
    both_obey(1);
    EXPECT_TRUE(all<LaunchWorkers>().empty());
    assign(2);
    EXPECT_TRUE(all<LaunchWorkers>().empty());
    assign(3);
    EXPECT_TRUE(launched(3));
}

TEST_F(AgentCoreTest, ARoundPromisedOverAnOldConnectionMustBePromisedAgain) {
    in_round(1);
    assign(2);
    feed(LinkDown{});
    feed(LinkUp{});  // To a younger daemon, perhaps, which knows nothing of round 2.
    both_obey(1);
    EXPECT_TRUE(all<LaunchWorkers>().empty());
    assign(102);
    EXPECT_TRUE(launched(102));
}

TEST_F(AgentCoreTest, WorkersGoOnWithoutTheDaemonAndTheEndIsToldWhenItIsBack) {
    in_round(1);
    feed(LinkDown{});
    pass(minutes(5));
    EXPECT_TRUE(all<SignalWorkers>().empty());
    exits(1, 0);
    exits(1, 1);
    EXPECT_TRUE(effects.empty());
    feed(LinkUp{});
    ASSERT_EQ(sent<Join>().size(), 1U);
    EXPECT_EQ(sent<Join>()[0].report.state, NodeState::finished);
}

// ---- The end.

TEST_F(AgentCoreTest, ClosedEndsTheAgentWithTheVerdictOnceTheWorkersAreGone) {
    in_round(1);
    Verdict verdict;
    verdict.exit_code = 7;
    verdict.reason = "enough";
    hear(Closed{verdict});
    EXPECT_FALSE(quit().has_value());
    EXPECT_TRUE(core.leaving());
    both_obey(1);
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->exit_code, 7);
    EXPECT_EQ(quit()->verdict, verdict);
    EXPECT_TRUE(core.done());
    effects.clear();
    assign(9);
    feed(LinkUp{});
    pass(minutes(60));
    EXPECT_TRUE(effects.empty());
}

TEST_F(AgentCoreTest, RefusalEndsTheAgentAsAUsageErrorOrAsNoRendezvous) {
    hear(Refused{Errc::invalid_argument, "node b contradicts node a"});
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->exit_code, kExitUsage);
    EXPECT_EQ(quit()->reason, "refused by the rendezvous: node b contradicts node a");
    AgentCore other(config_of_two_workers(), now);
    (void)other.step(now, LinkUp{});
    keep(other.step(now, Received{Refused{Errc::overloaded, "full"}}));
    EXPECT_EQ(quit()->exit_code, kExitNoRendezvous);
}

TEST_F(AgentCoreTest, SignalMakesTheNodeLeaveAndEndByThatSignal) {
    in_round(1);
    feed(QuitRequested{SIGTERM});
    ASSERT_EQ(sent<Leave>().size(), 1U);
    EXPECT_EQ(sent<Leave>()[0].reason, "stopped by SIGTERM");
    EXPECT_EQ(all<SignalWorkers>().size(), 1U);
    both_obey(1);
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->signal, SIGTERM);
    EXPECT_EQ(quit()->exit_code, 128 + SIGTERM);
}

TEST_F(AgentCoreTest, SecondSignalShortensTheGraceToNothing) {
    for (const auto& [signal, wait] :
         {std::pair(SIGINT, milliseconds(200)), {SIGTERM, seconds(1)}}) {
        core = AgentCore(config_of_two_workers(), now);
        feed(StoreOffered{kPort});
        feed(LinkUp{});
        in_round(1);
        feed(QuitRequested{signal});
        pass(wait);
        feed(QuitRequested{signal});
        effects.clear();
        pass(Duration::zero());
        ASSERT_EQ(all<SignalWorkers>().size(), 1U);
        EXPECT_TRUE(all<SignalWorkers>()[0].force());
        EXPECT_TRUE(all<SignalWorkers>()[0].hurried);
    }
}

TEST_F(AgentCoreTest, SignalsThatComeAtOnceAreOneWish) {
    in_round(1);
    feed(QuitRequested{SIGTERM});
    effects.clear();
    feed(QuitRequested{SIGTERM});  // timeout(1)
    pass(milliseconds(300));
    feed(QuitRequested{SIGHUP});  // systemd
    pass(milliseconds(699));
    feed(QuitRequested{SIGTERM});
    pass(seconds(5));
    EXPECT_TRUE(all<SignalWorkers>().empty());
}

TEST_F(AgentCoreTest, ALeavingNodeRepeatsThatItLeavesAndNeverJoinsAgain) {
    in_round(1);
    feed(QuitRequested{SIGTERM});
    effects.clear();
    pass(seconds(2));
    EXPECT_EQ(sent<Leave>().size(), 2U);  // The first may have been lost.
    EXPECT_TRUE(sent<Report>().empty());
    feed(LinkDown{});
    feed(LinkUp{});
    hear(Fenced{"unknown"});
    assign(2);
    hear(Stop{RoundId{1}, "why"});
    both_obey(1);
    EXPECT_TRUE(sent<Join>().empty());
    EXPECT_TRUE(sent<Report>().empty());
    EXPECT_TRUE(all<LaunchWorkers>().empty());
    EXPECT_TRUE(quit().has_value());
}

TEST_F(AgentCoreTest, WithoutARoundForTheJoinTimeoutItGivesUpAndSaysGoodbye) {
    pass_answered(minutes(10) - milliseconds(1));
    EXPECT_FALSE(quit().has_value());
    pass(milliseconds(1));
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->exit_code, kExitNoRendezvous);
    EXPECT_EQ(quit()->reason, "no round was formed within 600 s (--join-timeout)");
    EXPECT_EQ(sent<Leave>().size(), 1U);
}

TEST_F(AgentCoreTest, WithoutADaemonForTheJoinTimeoutItGivesUpEvenWithWorkers) {
    in_round(1);
    feed(LinkDown{});
    pass(minutes(10));
    EXPECT_TRUE(core.leaving());
    both_obey(1);
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->reason, "no rendezvous was reached within 600 s (--join-timeout)");
}

TEST_F(AgentCoreTest, PatienceBeginsAnewWithEveryDisconnection) {
    in_round(1);
    for (int i = 0; i < 5; ++i) {
        feed(LinkDown{});
        pass(minutes(9));
        feed(LinkUp{});
        pass_answered(seconds(5));
    }
    EXPECT_FALSE(core.leaving());
}

TEST_F(AgentCoreTest, PatienceDoesNotRunOutWhileWorkersAreBeingStoppedAfterAReconnection) {
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

TEST_F(AgentCoreTest, ASpareWaitsForEver) {
    Waiting waiting;
    waiting.spare = true;
    hear(waiting);
    pass_answered(minutes(120));
    EXPECT_FALSE(core.leaving());
    waiting.spare = false;  // The round is over, but there is still no place.
    hear(waiting);
    pass_answered(minutes(10));
    EXPECT_TRUE(core.leaving());
}

TEST_F(AgentCoreTest, AFinishedNodeWaitsForTheOthersAsLongAsItTakes) {
    in_round(1);
    exits(1, 0);
    exits(1, 1);
    pass_answered(minutes(600));
    EXPECT_FALSE(core.leaving());
}

TEST_F(AgentCoreTest, TheVerdictIsKeptEvenIfWorkersResistSigkill) {
    in_round(1);
    Verdict verdict;
    verdict.exit_code = 7;
    hear(Closed{verdict});
    pass(minutes(1));
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->exit_code, 7);
    EXPECT_EQ(quit()->verdict, verdict);
    EXPECT_NE(quit()->reason.find("SIGKILL"), std::string::npos);
}

// ---- Departure.

TEST_F(AgentCoreTest, NodeThatIsDoneGoesWhenItIsDismissed) {
    in_round(1);
    exits(1, 0);
    exits(1, 1);
    effects.clear();
    hear(Dismissed{RoundId{1}});
    ASSERT_EQ(all<Quit>().size(), 1U);
    EXPECT_EQ(all<Quit>()[0].exit_code, 0);
    EXPECT_EQ(all<Quit>()[0].signal, 0);
    EXPECT_TRUE(core.done());
}

TEST_F(AgentCoreTest, DismissalFromAnotherRoundOrBeforeTheEndIsNothing) {
    in_round(2);
    hear(Dismissed{RoundId{2}});
    exits(2, 0);
    exits(2, 1);
    hear(Dismissed{RoundId{1}});
    EXPECT_TRUE(all<Quit>().empty());
    EXPECT_FALSE(core.done());
}

TEST_F(AgentCoreTest, NodeThatServesTheRendezvousStaysUntilTheEnd) {
    AgentConfig config = config_of_two_workers();
    config.stays_until_closed = true;
    core = AgentCore(config, now);
    feed(StoreOffered{kPort});
    feed(LinkUp{});
    in_round(1);
    exits(1, 0);
    exits(1, 1);
    hear(Dismissed{RoundId{1}});
    EXPECT_FALSE(core.done());
}

TEST_F(AgentCoreTest, WorkersGetTheSignalThatTheNodeGot) {
    in_round(1);
    feed(QuitRequested{SIGINT});
    ASSERT_EQ(all<SignalWorkers>().size(), 1U);
    EXPECT_EQ(all<SignalWorkers>()[0].signal, SIGINT);
    // A death by that signal is our doing, and no failure.
    exits(1, 0, crash(0, SIGINT));
    exits(1, 1, crash(1, SIGINT));
    EXPECT_FALSE(core.report().failure.has_value());
}

}  // namespace
}  // namespace regroup::agent
