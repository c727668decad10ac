// SPDX-License-Identifier: Apache-2.0
//
// The promises of AgentCore's header about workers that keep their processes: parking, taking a
// place again, pausing, draining, and starting ahead of a round.
#include "rendezvous/core/messages.h"
#include "tests/unit/agent_core_fixture.h"

namespace regroup::agent {
namespace {

using namespace rendezvous;
using std::chrono::seconds;
using Ranks = std::vector<std::uint32_t>;

class AgentCoreResidentTest : public AgentCoreTest {
   protected:
    // Both workers are resident, in round 1.
    void SetUp() override {
        in_round(1);
        attach(0);
        attach(1);
        ASSERT_TRUE(core.report().resident);
        effects.clear();
    }
    void attach(std::uint32_t local_rank) { feed(WorkerAttached{local_rank, true}); }
    void parks(std::uint64_t round, std::uint32_t local_rank) {
        feed(WorkerParked{local_rank, RoundId{round}});
    }
    void prepare(bool leave) { hear(Prepare{RoundId{1}, leave, "a node joins"}); }
    [[nodiscard]] bool reported(NodeState state) const {
        const auto reports = sent<Report>();
        return !reports.empty() && reports.back().report.state == state;
    }
};

TEST_F(AgentCoreResidentTest, AStepBoundaryOfWhichOnlyTheWorkersHaveHeardIsNoLoss) {
    feed(WorkerParked{0, RoundId{1}, true});
    EXPECT_TRUE(all<EndRound>().empty());
    EXPECT_EQ(core.report().state, NodeState::running);
    feed(WorkerParked{1, RoundId{1}, true});
    EXPECT_TRUE(reported(NodeState::stopped));
    assign(2);
    EXPECT_TRUE(all<LaunchWorkers>().empty());
}

// ---- Losses.

TEST_F(AgentCoreResidentTest, ResidentIsSaidOnceAllWorkersAre) {
    core = AgentCore(config_of_two_workers(), now);
    feed(StoreOffered{kPort});
    feed(LinkUp{});
    in_round(1);
    attach(0);
    EXPECT_TRUE(sent<Report>().empty());
    feed(WorkerAttached{1, false});
    EXPECT_FALSE(core.report().resident);
    attach(1);
    ASSERT_EQ(sent<Report>().size(), 1U);
    EXPECT_TRUE(sent<Report>()[0].report.resident);
}

TEST_F(AgentCoreResidentTest, StopParksThemAndTheNextRoundGivesThemPlacesAgain) {
    hear(Stop{RoundId{1}, "another node is lost"});
    ASSERT_EQ(all<EndRound>().size(), 1U);
    EXPECT_EQ(all<EndRound>()[0].local_ranks, (Ranks{0, 1}));
    EXPECT_TRUE(all<SignalWorkers>().empty());
    parks(1, 0);
    EXPECT_FALSE(reported(NodeState::stopped));
    parks(1, 1);
    EXPECT_TRUE(reported(NodeState::stopped));
    assign(2);
    EXPECT_TRUE(all<LaunchWorkers>().empty());
    ASSERT_EQ(all<AssignWorkers>().size(), 1U);
    EXPECT_EQ(all<AssignWorkers>()[0].local_ranks, (Ranks{0, 1}));
    EXPECT_EQ(core.report().state, NodeState::running);
}

TEST_F(AgentCoreResidentTest, OnlyTheLostWorkerIsLaunchedAgain) {
    exits(1, 0, crash(0, SIGKILL));
    ASSERT_EQ(all<EndRound>().size(), 1U);
    EXPECT_EQ(all<EndRound>()[0].local_ranks, (Ranks{1}));
    EXPECT_TRUE(reported(NodeState::stopping));  // At once: the others are to hear of it.
    parks(1, 1);
    ASSERT_TRUE(core.report().failure.has_value());
    EXPECT_EQ(core.report().failure->signal, SIGKILL);
    assign(2);
    ASSERT_EQ(all<AssignWorkers>().size(), 1U);
    EXPECT_EQ(all<AssignWorkers>()[0].local_ranks, (Ranks{1}));
    ASSERT_EQ(all<LaunchWorkers>().size(), 1U);
    EXPECT_EQ(all<LaunchWorkers>()[0].local_ranks, (Ranks{0}));
    EXPECT_TRUE(core.report().resident);  // Until the fresh one shows that it is not.
    exits(2, 0, error(0));
    ASSERT_TRUE(core.report().failure.has_value());
    EXPECT_EQ(core.report().failure->exit_code, 1);
}

TEST_F(AgentCoreResidentTest, WhoHasNotAttachedEndsWithTheRound) {
    exits(1, 0, crash(0, SIGKILL));
    parks(1, 1);
    assign(2);
    effects.clear();
    hear(Stop{RoundId{2}, "another node is lost"});
    ASSERT_EQ(all<SignalWorkers>().size(), 1U);
    EXPECT_EQ(all<SignalWorkers>()[0].local_ranks, (Ranks{0}));
    ASSERT_EQ(all<EndRound>().size(), 1U);
    EXPECT_EQ(all<EndRound>()[0].local_ranks, (Ranks{1}));
}

TEST_F(AgentCoreResidentTest, WhoDoesNotParkInTimeIsKilledAndTheOthersAreNot) {
    hear(Stop{RoundId{1}, "another node is lost"});
    parks(1, 0);
    pass_answered(seconds(11));
    ASSERT_FALSE(all<SignalWorkers>().empty());
    EXPECT_TRUE(all<SignalWorkers>()[0].force());
    EXPECT_EQ(all<SignalWorkers>()[0].local_ranks, (Ranks{1}));
    exits(1, 1, crash(1, SIGKILL));
    EXPECT_EQ(core.report().state, NodeState::stopped);
    EXPECT_FALSE(core.report().failure.has_value());  // It was we.
}

TEST_F(AgentCoreResidentTest, WhoSaidThatItFailsHasFailedHoweverLongItTakesToEnd) {
    parks(1, 0);  // Its peer of this very node is as good as gone, and has not ended yet.
    ASSERT_EQ(core.report().state, NodeState::stopping);
    WorkerFailure announced = error(1);
    announced.announced = true;
    exits(1, 1, announced);
    EXPECT_EQ(core.report().state, NodeState::stopped);
    ASSERT_TRUE(core.report().failure.has_value());
    EXPECT_TRUE(core.report().failure->announced);
}

TEST_F(AgentCoreResidentTest, AWorkerThatParksUnaskedHasLostItsPeers) {
    parks(1, 0);
    ASSERT_EQ(all<EndRound>().size(), 1U);
    EXPECT_EQ(all<EndRound>()[0].local_ranks, (Ranks{1}));
    EXPECT_TRUE(reported(NodeState::stopping));
    parks(1, 1);
    EXPECT_TRUE(reported(NodeState::stopped));
}

TEST_F(AgentCoreResidentTest, AConnectionThatBreaksIsToldAtOnceAndEndsNothingHere) {
    feed(WorkerLostPeer{1, RoundId{1}, 2, "closed the connection"});
    const std::uint32_t rank = core.assignment().first_rank + 1;
    const std::vector<BrokenLink> links = {{rank, 2, "closed the connection"}};
    ASSERT_EQ(sent<Report>().size(), 1U);
    EXPECT_EQ(sent<Report>()[0].report.broken_links, links);
    EXPECT_TRUE(reported(NodeState::running));
    EXPECT_TRUE(all<EndRound>().empty());
    // What follows from it is no news, nor is what an earlier round had.
    feed(WorkerLostPeer{1, RoundId{1}, 3, "closed the connection"});
    feed(WorkerLostPeer{0, RoundId{0}, 3, "closed the connection"});
    EXPECT_EQ(core.report().broken_links, links);
    hear(Stop{RoundId{1}, "it broke"});
    parks(1, 0);
    parks(1, 1);
    assign(2);
    EXPECT_TRUE(core.report().broken_links.empty());
}

TEST_F(AgentCoreResidentTest, WhoseTrainingIsFinishedHasLostNobody) {
    feed(WorkerLostPeer{1, RoundId{1}, 2, "closed the connection"});
    feed(WorkerAttached{1, false});
    EXPECT_TRUE(core.report().broken_links.empty());
    ASSERT_FALSE(sent<Report>().empty());
    EXPECT_TRUE(sent<Report>().back().report.broken_links.empty());
}

TEST_F(AgentCoreResidentTest, ALateWordOfAnOlderRoundParksNobody) {
    hear(Stop{RoundId{1}, "another node is lost"});
    parks(1, 0);
    parks(1, 1);
    assign(2);
    effects.clear();
    parks(1, 0);
    EXPECT_FALSE(core.is_parked(0));
    EXPECT_TRUE(all<EndRound>().empty());
}

TEST_F(AgentCoreResidentTest, AParkedWorkerThatDiesIsNobodysFailure) {
    hear(Stop{RoundId{1}, "another node is lost"});
    parks(1, 0);
    parks(1, 1);
    exits(1, 0, crash(0));
    EXPECT_FALSE(core.report().failure.has_value());
    assign(2);
    ASSERT_EQ(all<LaunchWorkers>().size(), 1U);
    EXPECT_EQ(all<LaunchWorkers>()[0].local_ranks, (Ranks{0}));
}

TEST_F(AgentCoreResidentTest, FencedWorkersParkAndTheNodeJoinsAgain) {
    hear(Fenced{"silent for 3 s"});
    EXPECT_EQ(all<EndRound>().size(), 1U);
    parks(1, 0);
    EXPECT_TRUE(sent<Join>().empty());
    parks(1, 1);
    ASSERT_EQ(sent<Join>().size(), 1U);
    EXPECT_EQ(sent<Join>()[0].report.state, NodeState::stopped);
    EXPECT_TRUE(core.has_workers());
}

TEST_F(AgentCoreResidentTest, ClosedEndsParkedWorkersToo) {
    hear(Stop{RoundId{1}, "another node is lost"});
    parks(1, 0);
    effects.clear();
    hear(Closed{Verdict{}});
    // Who is parked may handle SIGTERM, which is no reason to wait for it.
    ASSERT_EQ(all<SignalWorkers>().size(), 2U);
    EXPECT_EQ(all<SignalWorkers>()[0].local_ranks, (Ranks{1}));
    EXPECT_EQ(all<SignalWorkers>()[0].signal, SIGTERM);
    EXPECT_EQ(all<SignalWorkers>()[1].local_ranks, (Ranks{0}));
    EXPECT_TRUE(all<SignalWorkers>()[1].force());
    exits(1, 0, crash(0, SIGKILL));
    EXPECT_FALSE(quit().has_value());
    exits(1, 1, crash(1, SIGTERM));
    EXPECT_TRUE(quit().has_value());
}

// ---- Planned changes.

TEST_F(AgentCoreResidentTest, PrepareParksAtAStepBoundaryWithoutEndingTheRoundBefore) {
    prepare(false);
    prepare(false);
    ASSERT_EQ(all<PauseWorkers>().size(), 1U);
    EXPECT_FALSE(all<PauseWorkers>()[0].leave);
    parks(1, 0);
    EXPECT_EQ(core.report().state, NodeState::running);
    EXPECT_TRUE(all<EndRound>().empty());
    parks(1, 1);
    EXPECT_TRUE(reported(NodeState::stopped));
}

TEST_F(AgentCoreResidentTest, ASpareWithWhichTheRendezvousGoesAsksTheOthersToSaveTheirStateFirst) {
    AgentConfig config = config_of_two_workers();
    config.offer.hosts_rendezvous = true;
    core = AgentCore(config, now);
    feed(LinkUp{});
    EXPECT_FALSE(core.would_drain());
    Waiting waiting;
    waiting.spare = true;
    hear(waiting);
    feed(QuitRequested{SIGTERM});
    EXPECT_TRUE(sent<Leave>().empty());
    EXPECT_EQ(core.report().draining, "stopped by SIGTERM");
    hear(rendezvous::Prepare{RoundId::none, true, "node a leaves"});
    ASSERT_EQ(all<Quit>().size(), 1U);
    EXPECT_EQ(all<Quit>()[0].exit_code, kExitRequeue);
}

TEST_F(AgentCoreResidentTest, WhoIsToLeaveGoesWhenItsWorkersHaveEnded) {
    prepare(true);
    ASSERT_EQ(all<PauseWorkers>().size(), 1U);
    EXPECT_TRUE(all<PauseWorkers>()[0].leave);
    exits(1, 0);
    EXPECT_FALSE(quit().has_value());
    exits(1, 1);
    ASSERT_EQ(sent<Leave>().size(), 1U);
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->exit_code, kExitRequeue);
}

TEST_F(AgentCoreResidentTest, ASignalBeginsADrain) {
    EXPECT_TRUE(core.would_drain());
    feed(QuitRequested{SIGTERM});
    EXPECT_FALSE(core.would_drain());
    EXPECT_TRUE(core.draining());
    EXPECT_TRUE(sent<Leave>().empty());
    ASSERT_EQ(sent<Report>().size(), 1U);
    EXPECT_EQ(sent<Report>()[0].report.draining, "stopped by SIGTERM");
    EXPECT_TRUE(all<SignalWorkers>().empty());
    prepare(true);
    exits(1, 0);
    exits(1, 1);
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->exit_code, kExitRequeue);
    EXPECT_EQ(quit()->signal, 0);
}

TEST_F(AgentCoreResidentTest, ADrainThatTakesTooLongEndsAsASignalDoes) {
    feed(QuitRequested{SIGTERM});
    pass_answered(seconds(9));
    EXPECT_TRUE(all<SignalWorkers>().empty());
    pass_answered(seconds(2));
    ASSERT_EQ(all<SignalWorkers>().size(), 1U);
    EXPECT_EQ(all<SignalWorkers>()[0].signal, SIGTERM);
    EXPECT_FALSE(sent<Leave>().empty());
    both_obey(1);
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->signal, SIGTERM);
}

TEST_F(AgentCoreResidentTest, ASecondSignalEndsADrainAndAnEchoDoesNot) {
    feed(QuitRequested{SIGTERM});
    feed(QuitRequested{SIGHUP});
    EXPECT_TRUE(core.draining());
    pass_answered(seconds(2));
    feed(QuitRequested{SIGTERM});
    EXPECT_TRUE(core.leaving());
    ASSERT_EQ(all<SignalWorkers>().size(), 1U);
    EXPECT_EQ(sent<Leave>().size(), 1U);
}

TEST_F(AgentCoreResidentTest, WithoutADaemonASignalEndsTheNodeAtOnce) {
    feed(LinkDown{});
    EXPECT_FALSE(core.would_drain());
    feed(QuitRequested{SIGTERM});
    EXPECT_TRUE(core.leaving());
    EXPECT_EQ(all<SignalWorkers>().size(), 1U);
}

TEST_F(AgentCoreResidentTest, ASignalBetweenTwoRoundsBeginsADrainToo) {
    hear(Stop{RoundId{1}, "another node is lost"});
    parks(1, 0);
    parks(1, 1);
    EXPECT_TRUE(core.would_drain());
    feed(QuitRequested{SIGTERM});
    EXPECT_TRUE(sent<Leave>().empty());
    ASSERT_FALSE(sent<Report>().empty());
    EXPECT_EQ(sent<Report>().back().report.draining, "stopped by SIGTERM");
    hear(Prepare{RoundId{1}, true, "node a leaves"});
    ASSERT_EQ(all<PauseWorkers>().size(), 1U);
    EXPECT_TRUE(all<PauseWorkers>()[0].leave);
    exits(1, 0);
    exits(1, 1);
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->exit_code, kExitRequeue);
    EXPECT_EQ(quit()->reason, "drained: stopped by SIGTERM");
}

TEST_F(AgentCoreResidentTest, ASignalAfterTheLastWorkerWasLostLeavesItToTheDaemonWhoHasTheState) {
    exits(1, 0, crash(0, SIGKILL));
    exits(1, 1, crash(1, SIGKILL));
    ASSERT_FALSE(core.has_workers());
    feed(QuitRequested{SIGTERM});
    EXPECT_TRUE(sent<Leave>().empty());
    hear(Prepare{RoundId{1}, true, "node a leaves"});
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->exit_code, kExitRequeue);
}

TEST_F(AgentCoreResidentTest, ParkedWorkersSaveTheirStateWithoutADaemon) {
    hear(Stop{RoundId{1}, "another node is lost"});
    parks(1, 0);
    parks(1, 1);
    feed(LinkDown{});
    EXPECT_TRUE(core.would_drain());
    feed(QuitRequested{SIGTERM});
    ASSERT_EQ(all<PauseWorkers>().size(), 1U);
    EXPECT_TRUE(all<PauseWorkers>()[0].leave);
    EXPECT_TRUE(all<SignalWorkers>().empty());
    feed(LinkUp{});
    assign(2);  // Too late: they save.
    EXPECT_TRUE(all<AssignWorkers>().empty());
    exits(1, 0);
    exits(1, 1);
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->exit_code, kExitRequeue);
}

TEST_F(AgentCoreResidentTest, AFailureWhilePausingStopsTheRoundAsEver) {
    prepare(false);
    parks(1, 0);
    exits(1, 1, crash(1));
    EXPECT_EQ(core.report().state, NodeState::stopped);
    ASSERT_TRUE(core.report().failure.has_value());
    EXPECT_EQ(core.report().failure->signal, SIGSEGV);
}

// ---- Drains that come late, or meet a death.

TEST_F(AgentCoreResidentTest, WhoHearsOfItsLeaveAfterTheBoundarySavesAllTheSame) {
    parks(1, 0);
    hear(Prepare{RoundId{1}, true, "all leave"});  // It is stopping by now.
    ASSERT_EQ(all<PauseWorkers>().size(), 1U);
    EXPECT_TRUE(all<PauseWorkers>()[0].leave);
    parks(1, 1);
    EXPECT_TRUE(reported(NodeState::stopped));
    EXPECT_TRUE(all<SignalWorkers>().empty());
    exits(1, 0);
    EXPECT_FALSE(quit().has_value());
    exits(1, 1);
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->exit_code, kExitRequeue);
}

TEST_F(AgentCoreResidentTest, ParkedWorkersThatAreToLeaveAreToldAndWaitedFor) {
    hear(Stop{RoundId{1}, "another node is lost"});
    parks(1, 0);
    parks(1, 1);
    hear(Prepare{RoundId{1}, true, "all leave"});
    hear(Prepare{RoundId{1}, true, "all leave"});
    ASSERT_EQ(all<PauseWorkers>().size(), 1U);
    EXPECT_TRUE(all<SignalWorkers>().empty());
    exits(1, 0);
    assign(2);
    EXPECT_TRUE(all<AssignWorkers>().empty());
    EXPECT_FALSE(quit().has_value());
    exits(1, 1);
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->exit_code, kExitRequeue);
}

TEST_F(AgentCoreResidentTest, WorkersThatVotedBeforeTheirNodeKnewPark) {
    prepare(true);
    parks(1, 0);  // They had looked at their pages just before.
    parks(1, 1);
    EXPECT_FALSE(quit().has_value());
    exits(1, 0);
    exits(1, 1);
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->exit_code, kExitRequeue);
}

TEST_F(AgentCoreResidentTest, ADeathBeforeTheBoundaryLeavesTheSurvivorsTimeToSave) {
    prepare(true);
    exits(1, 0, crash(0, SIGKILL));
    parks(1, 1);
    ASSERT_TRUE(core.report().failure.has_value());
    Verdict verdict;
    verdict.exit_code = kExitRequeue;
    hear(Closed{verdict});
    pass(seconds(5));
    EXPECT_TRUE(all<SignalWorkers>().empty());
    EXPECT_FALSE(quit().has_value());
    exits(1, 1);
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->exit_code, kExitRequeue);
}

TEST_F(AgentCoreResidentTest, TheEndOfAJobThatIsDrainedIsEnoughToSave) {
    hear(Stop{RoundId{1}, "another node is lost"});
    parks(1, 0);
    parks(1, 1);
    Verdict verdict;
    verdict.exit_code = kExitRequeue;
    hear(Closed{verdict});
    ASSERT_EQ(all<PauseWorkers>().size(), 1U);
    EXPECT_TRUE(all<PauseWorkers>()[0].leave);
    EXPECT_TRUE(all<SignalWorkers>().empty());
    pass(config_of_two_workers().policy.prepare_timeout + seconds(1));
    ASSERT_FALSE(all<SignalWorkers>().empty());  // Not for ever.
}

TEST_F(AgentCoreResidentTest, WhoFailsToSaveIsNotTakenForSaved) {
    hear(Stop{RoundId{1}, "another node is lost"});
    parks(1, 0);
    parks(1, 1);
    hear(Prepare{RoundId{1}, true, "all leave"});
    exits(1, 0);
    exits(1, 1, error(1));
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->exit_code, kExitJobFailed);
}

TEST_F(AgentCoreResidentTest, ADrainOnTheLastStepFindsTheTrainingFinished) {
    feed(QuitRequested{SIGTERM});
    prepare(true);
    feed(WorkerExited{RoundId{1}, 0, std::nullopt, true});
    feed(WorkerExited{RoundId{1}, 1, std::nullopt, true});
    EXPECT_TRUE(reported(NodeState::finished));
    EXPECT_FALSE(quit().has_value());
    pass_answered(seconds(11));  // It does not wait for the others for ever.
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->exit_code, 0);
    EXPECT_EQ(quit()->signal, 0);
}

TEST_F(AgentCoreResidentTest, WhoHasFinishedTrainingIsAsAnyProgram) {
    feed(WorkerAttached{0, false});
    EXPECT_FALSE(core.report().resident);
    ASSERT_EQ(sent<Report>().size(), 1U);
    EXPECT_FALSE(core.would_drain());
    hear(Stop{RoundId{1}, "another node is lost"});
    ASSERT_EQ(all<SignalWorkers>().size(), 1U);
    EXPECT_EQ(all<SignalWorkers>()[0].local_ranks, (Ranks{0}));
    EXPECT_EQ(all<EndRound>()[0].local_ranks, (Ranks{1}));
}

// ---- Spares.

TEST_F(AgentCoreResidentTest, ASpareStartsItsWorkersAheadAndGivesThemPlacesLater) {
    core = AgentCore(config_of_two_workers(), now);
    feed(StoreOffered{kPort});
    feed(LinkUp{});
    Waiting waiting;
    waiting.spare = true;
    hear(waiting);
    EXPECT_TRUE(all<PrestartWorkers>().empty());
    waiting.prestart = true;
    hear(waiting);
    hear(waiting);
    ASSERT_EQ(all<PrestartWorkers>().size(), 1U);
    EXPECT_EQ(all<PrestartWorkers>()[0].local_ranks, (Ranks{0, 1}));
    EXPECT_EQ(core.report().state, NodeState::stopped);
    assign(7);
    ASSERT_EQ(all<AssignWorkers>().size(), 1U);
    EXPECT_EQ(all<AssignWorkers>()[0].local_ranks, (Ranks{0, 1}));
    EXPECT_TRUE(all<LaunchWorkers>().empty());
    // The word that they are there comes late.
    parks(0, 0);
    EXPECT_FALSE(core.is_parked(0));
    EXPECT_EQ(core.report().state, NodeState::running);
}

TEST_F(AgentCoreResidentTest, WhoDiesAheadOfARoundIsNotStartedAgainUntilThereIsOne) {
    core = AgentCore(config_of_two_workers(), now);
    feed(StoreOffered{kPort});
    feed(LinkUp{});
    Waiting waiting;
    waiting.spare = waiting.prestart = true;
    hear(waiting);
    exits(0, 0, error(0));
    hear(waiting);
    EXPECT_EQ(all<PrestartWorkers>().size(), 1U);
    EXPECT_FALSE(core.report().failure.has_value());
    assign(7);
    ASSERT_EQ(all<LaunchWorkers>().size(), 1U);
    EXPECT_EQ(all<LaunchWorkers>()[0].local_ranks, (Ranks{0}));
}

TEST_F(AgentCoreResidentTest, ASpareHasNothingToSaveAndLeavesAtOnceAsDrained) {
    core = AgentCore(config_of_two_workers(), now);
    feed(StoreOffered{kPort});
    feed(LinkUp{});
    Waiting waiting;
    waiting.spare = waiting.prestart = true;
    hear(waiting);
    EXPECT_FALSE(core.would_drain());
    feed(QuitRequested{SIGTERM});
    EXPECT_EQ(sent<Leave>().size(), 1U);
    ASSERT_EQ(all<SignalWorkers>().size(), 1U);
    EXPECT_TRUE(all<SignalWorkers>()[0].force());
    exits(0, 0, crash(0, SIGKILL));
    exits(0, 1, crash(1, SIGKILL));
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->exit_code, kExitRequeue);
    EXPECT_EQ(quit()->signal, 0);
}

// ---- What passes through.

TEST_F(AgentCoreResidentTest, TheFirstStepOfARoundIsToldByTheNodeWithRankZero) {
    feed(WorkerResumed{1, Resumed{RoundId{1}, 5, {}, {}, {}}});
    EXPECT_TRUE(sent<Resumed>().empty());
    feed(WorkerResumed{0, Resumed{RoundId{1}, 5, {}, {}, {}}});
    ASSERT_EQ(sent<Resumed>().size(), 1U);
    EXPECT_EQ(sent<Resumed>()[0].step, 5U);
    feed(StepsCommitted{9});
    EXPECT_EQ(core.report().step, 9U);
    EXPECT_EQ(core.report().held_step, 9U);
    feed(StepsCommitted{8});
    EXPECT_EQ(core.report().step, 9U);
    EXPECT_EQ(core.report().held_step, 8U);
}

TEST_F(AgentCoreResidentTest, TheStateIsGoneWithTheLastProcessThatHadIt) {
    feed(StepsCommitted{9});
    exits(1, 0, error(0));
    EXPECT_EQ(core.report().held_step, 9U);
    exits(1, 1, error(1));
    EXPECT_EQ(core.report().held_step, 0U);
    EXPECT_EQ(core.report().step, 9U);
    ASSERT_FALSE(sent<Report>().empty());
    EXPECT_EQ(sent<Report>().back().report.held_step, 0U);
}

TEST_F(AgentCoreResidentTest, TheFirstStepIsToldAgainUntilItsRecoveryIsHeardOf) {
    feed(LinkDown{});
    feed(WorkerResumed{0, Resumed{RoundId{1}, 5, {}, {}, {}}});
    EXPECT_TRUE(sent<Resumed>().empty());
    feed(LinkUp{});
    ASSERT_EQ(sent<Resumed>().size(), 1U);
    // The daemon may have died of it.
    feed(LinkDown{});
    feed(LinkUp{});
    ASSERT_EQ(sent<Resumed>().size(), 2U);
    EXPECT_EQ(sent<Resumed>()[1].step, 5U);
    rendezvous::Incident incident;
    incident.next_round = RoundId{1};
    hear(rendezvous::Recovered{incident});
    feed(LinkDown{});
    feed(LinkUp{});
    EXPECT_EQ(sent<Resumed>().size(), 2U);
}

TEST_F(AgentCoreResidentTest, TheWorkerThatARoundHangsOnIsKilledAndItsFailureIsAHang) {
    hear(EndWorker{RoundId{1}, 1, "rank 1 is not in the collective"});
    ASSERT_EQ(all<KillWorker>().size(), 1U);
    EXPECT_EQ(all<KillWorker>()[0].local_rank, 1U);
    exits(1, 1, crash(1, SIGKILL));
    ASSERT_TRUE(core.report().failure.has_value());
    EXPECT_EQ(core.report().failure->kind, FailureKind::hang);
}

}  // namespace
}  // namespace regroup::agent
