// SPDX-License-Identifier: Apache-2.0
//
// The next workers, while the last ones are still ending.
#include <functional>

#include "tests/unit/agent_core_fixture.h"

namespace regroup::agent {
namespace {

using rendezvous::NodeState;
using rendezvous::Report;
using rendezvous::Stop;
using Ranks = std::vector<std::uint32_t>;

class AgentCoreOverlapTest : public AgentCoreTest {
   protected:
    void begin(bool overlap_restart) {
        AgentConfig config = config_of_two_workers();
        config.policy.restarts_max = 3;
        config.policy.on_exit[2] = rendezvous::Reaction::fail;
        config.overlap_restart = overlap_restart;
        core = AgentCore(std::move(config), now);
        feed(StoreOffered{kPort});
        feed(LinkUp{});
        in_round(1);
    }
    void both_attach(std::uint32_t generation = 0, bool may_wait = true) {
        for (const std::uint32_t local_rank : {0U, 1U}) {
            feed(WorkerAttached{local_rank, false, may_wait, generation});
        }
    }
    void both_are_elastic() {
        for (const std::uint32_t local_rank : {0U, 1U}) {
            feed(WorkerAttached{local_rank, true, true, 0});
        }
    }
    void ends(std::uint64_t round, std::uint32_t local_rank, std::uint32_t generation,
              std::optional<WorkerFailure> failure) {
        feed(WorkerExited{RoundId{round}, local_rank, std::move(failure), false, generation});
    }
    [[nodiscard]] bool asks_for_room() const {
        const auto signals = all<SignalWorkers>();
        return !signals.empty() && signals.back().overlaps;
    }
    [[nodiscard]] NodeState last_told() const { return sent<Report>().back().report.state; }
};

// ---- Programs with the SDK: their successors wait for the last of them.

TEST_F(AgentCoreOverlapTest, SuccessorsOfProgramsWithTheSdkStartAtOnceAndGetPlacesAfterTheLastEnd) {
    begin(false);
    both_attach();
    exits(1, 0, crash(0));
    EXPECT_TRUE(asks_for_room());
    feed(RoomForSuccessors{RoundId{1}});
    ASSERT_EQ(all<ReleasePlaces>().size(), 1U);
    EXPECT_EQ(all<ReleasePlaces>()[0].local_ranks, (Ranks{1}));
    ASSERT_EQ(all<PrestartWorkers>().size(), 1U);
    EXPECT_EQ(all<PrestartWorkers>()[0].local_ranks, (Ranks{0, 1}));
    EXPECT_EQ(all<PrestartWorkers>()[0].generation, 1U);
    EXPECT_EQ(core.report().state, NodeState::stopping);
    feed(WorkerParked{0, RoundId::none, false, 1});
    feed(WorkerParked{1, RoundId::none, false, 1});
    EXPECT_EQ(core.report().state, NodeState::stopping);
    EXPECT_FALSE(core.report().resident);
    effects.clear();
    assign(2);
    EXPECT_TRUE(all<BeginRound>().empty());
    exits(1, 1, crash(1, SIGTERM));
    ASSERT_EQ(all<AssignWorkers>().size(), 1U);
    EXPECT_EQ(all<AssignWorkers>()[0].local_ranks, (Ranks{0, 1}));
    EXPECT_TRUE(all<LaunchWorkers>().empty());
    EXPECT_EQ(core.report().state, NodeState::running);
    EXPECT_EQ(last_told(), NodeState::running);  // Nobody else says that they are back.
}

TEST_F(AgentCoreOverlapTest, GenerationsAreToldApartHoweverOftenTheyAreSucceeded) {
    begin(false);
    both_attach();
    hear(Stop{RoundId{1}, "a node is lost"});
    feed(RoomForSuccessors{RoundId{1}});
    both_obey(1);
    EXPECT_EQ(last_told(), NodeState::stopped);
    assign(2);
    both_attach(1);
    hear(Stop{RoundId{2}, "a node is lost"});
    feed(RoomForSuccessors{RoundId{2}});
    ASSERT_EQ(all<PrestartWorkers>().size(), 2U);
    EXPECT_EQ(all<PrestartWorkers>()[1].generation, 2U);
    // Both were started ahead of a round.
    ends(0, 0, 1, crash(0, SIGTERM));
    ends(0, 0, 2, error(0));
    EXPECT_EQ(core.report().state, NodeState::stopping);
    EXPECT_FALSE(core.report().failure.has_value());
    EXPECT_TRUE(core.is_parked(1));
    ends(0, 1, 1, crash(1, SIGTERM));
    EXPECT_EQ(core.report().state, NodeState::stopped);
    effects.clear();
    assign(3);
    EXPECT_EQ(all<AssignWorkers>()[0].local_ranks, (Ranks{1}));
    EXPECT_EQ(all<LaunchWorkers>()[0].local_ranks, (Ranks{0}));
}

TEST_F(AgentCoreOverlapTest, AFailureOfTheirOwnIsReportedAlsoWhenSuccessorsAreThere) {
    begin(false);
    both_attach();
    hear(Stop{RoundId{1}, "rank 5 failed"});
    feed(RoomForSuccessors{RoundId{1}});
    exits(1, 1, crash(1));
    EXPECT_EQ(core.report().failure, crash(1));
}

TEST_F(AgentCoreOverlapTest, NobodyIsStartedForAJobThatIsLikelyToEnd) {
    begin(false);
    both_attach();
    WorkerFailure hopeless = error(0);
    hopeless.exit_code = 2;
    exits(1, 0, hopeless);
    EXPECT_FALSE(asks_for_room());
    feed(RoomForSuccessors{RoundId{1}});
    EXPECT_TRUE(all<PrestartWorkers>().empty());

    core = AgentCore(config_of_two_workers(), now);  // No restart is left.
    feed(StoreOffered{kPort});
    feed(LinkUp{});
    in_round(1);
    both_attach();
    exits(1, 0, crash(0));
    EXPECT_FALSE(asks_for_room());
}

TEST_F(AgentCoreOverlapTest, WhoHasNoLinkOrIsBelowAnotherProgramIsNotStartedAhead) {
    begin(false);
    feed(WorkerAttached{0, false, true, 0});
    hear(Stop{RoundId{1}, "a node is lost"});
    EXPECT_FALSE(asks_for_room());
    feed(RoomForSuccessors{RoundId{1}});
    EXPECT_TRUE(all<ReleasePlaces>().empty());

    begin(false);
    both_attach(0, false);
    hear(Stop{RoundId{1}, "a node is lost"});
    EXPECT_FALSE(asks_for_room());
}

TEST_F(AgentCoreOverlapTest, WithoutRoomEverythingIsAsWithoutTheFlag) {
    begin(true);
    hear(Stop{RoundId{1}, "a node is lost"});
    EXPECT_TRUE(asks_for_room());
    exits(1, 0, crash(0, SIGTERM));
    EXPECT_EQ(core.report().state, NodeState::stopping);
    exits(1, 1, crash(1, SIGTERM));
    EXPECT_EQ(last_told(), NodeState::stopped);
    feed(RoomForSuccessors{RoundId{1}});  // Too late.
    EXPECT_TRUE(all<ReleasePlaces>().empty());
}

TEST_F(AgentCoreOverlapTest, QuittingKillsWhoWaitsAndWaitsForWhoEnds) {
    begin(false);
    both_attach();
    hear(Stop{RoundId{1}, "a node is lost"});
    feed(RoomForSuccessors{RoundId{1}});
    effects.clear();
    feed(QuitRequested{SIGINT});
    ASSERT_EQ(all<SignalWorkers>().size(), 1U);
    EXPECT_TRUE(all<SignalWorkers>()[0].waiting);
    ends(0, 0, 1, crash(0, SIGKILL));
    ends(0, 1, 1, crash(1, SIGKILL));
    exits(1, 0, crash(0, SIGTERM));
    EXPECT_FALSE(quit().has_value());
    exits(1, 1, crash(1, SIGTERM));
    ASSERT_TRUE(quit().has_value());
    EXPECT_FALSE(core.has_workers());
}

// ---- Workers that keep their processes: a lost one's place is filled while the others park.

TEST_F(AgentCoreOverlapTest, WhoTakesALostOnesPlaceStartsWhileItsPeersLeaveTheRound) {
    begin(false);
    both_are_elastic();
    exits(1, 0, crash(0, SIGKILL));
    ASSERT_EQ(all<PrestartWorkers>().size(), 1U);
    EXPECT_EQ(all<PrestartWorkers>()[0].local_ranks, (Ranks{0}));
    EXPECT_EQ(core.report().state, NodeState::stopping);
    EXPECT_TRUE(core.report().resident);
    feed(WorkerParked{0, RoundId::none});
    EXPECT_EQ(core.report().state, NodeState::stopping);  // Its peer trains.
    feed(WorkerParked{1, RoundId{1}});
    EXPECT_EQ(last_told(), NodeState::stopped);
    assign(2);
    EXPECT_TRUE(all<LaunchWorkers>().empty());
    ASSERT_EQ(all<AssignWorkers>().size(), 1U);
    EXPECT_EQ(all<AssignWorkers>()[0].local_ranks, (Ranks{0, 1}));
    // The next loss may be that of the new one.
    both_are_elastic();
    exits(0, 0, crash(0, SIGKILL));
    EXPECT_EQ(all<PrestartWorkers>().size(), 2U);
}

TEST_F(AgentCoreOverlapTest, TheSecondOfTwoLostOnesIsReplacedAsSoonAsTheFirst) {
    AgentConfig config = config_of_two_workers();
    config.policy.restarts_max = 3;
    config.offer.workers = 3;
    core = AgentCore(std::move(config), now);
    feed(StoreOffered{kPort});
    feed(LinkUp{});
    in_round(1);
    both_are_elastic();
    feed(WorkerAttached{2, true, true, 0});
    exits(1, 2, crash(2, SIGKILL));
    exits(1, 0, crash(0, SIGKILL));
    ASSERT_EQ(all<PrestartWorkers>().size(), 2U);
    EXPECT_EQ(all<PrestartWorkers>()[0].local_ranks, (Ranks{2}));
    EXPECT_EQ(all<PrestartWorkers>()[1].local_ranks, (Ranks{0}));
}

TEST_F(AgentCoreOverlapTest, NobodyTakesAPlaceAheadOfARoundThatIsNotToBeExpected) {
    const auto replaced = [this](const std::function<void()>& before, WorkerFailure failure) {
        begin(false);
        both_are_elastic();
        before();
        effects.clear();
        exits(1, 0, std::move(failure));
        return !all<PrestartWorkers>().empty();
    };
    WorkerFailure hopeless = error(0);
    hopeless.exit_code = 2;
    EXPECT_FALSE(replaced([] {}, hopeless));
    EXPECT_FALSE(replaced([this] { feed(QuitRequested{SIGTERM}); }, crash(0)));
    EXPECT_FALSE(
        replaced([this] { hear(rendezvous::Prepare{RoundId{1}, true, "drained"}); }, crash(0)));
    // One that is below another program, or a peer that ends with the round.
    EXPECT_FALSE(replaced([this] { feed(WorkerAttached{0, true, false, 0}); }, crash(0)));
    EXPECT_FALSE(replaced([this] { feed(WorkerAttached{1, false, true, 0}); }, crash(0)));
    EXPECT_TRUE(replaced([] {}, crash(0)));
}

// ---- Any program, if it was asked for: the old ones hold up nothing.

TEST_F(AgentCoreOverlapTest, WithTheFlagTheNodeHasStoppedWhenTheOldOnesAreAsked) {
    begin(true);
    exits(1, 0, crash(0));
    feed(RoomForSuccessors{RoundId{1}});
    EXPECT_EQ(last_told(), NodeState::stopped);
    EXPECT_EQ(sent<Report>().back().report.failure, crash(0));
    EXPECT_TRUE(all<PrestartWorkers>().empty());
    effects.clear();
    assign(2);
    ASSERT_TRUE(launched(2));
    EXPECT_EQ(all<LaunchWorkers>()[0].local_ranks, (Ranks{0, 1}));
    EXPECT_EQ(all<LaunchWorkers>()[0].generation, 1U);
    EXPECT_TRUE(core.has_outgoing());
    const WorkerExited old{RoundId{1}, 1, error(1)};
    EXPECT_TRUE(core.is_outgoing(old));
    feed(old);
    EXPECT_FALSE(core.has_outgoing());
    EXPECT_EQ(core.report().state, NodeState::running);
    EXPECT_FALSE(core.report().failure.has_value());
}

TEST_F(AgentCoreOverlapTest, AnEndAfterTheNodeHasStoppedIsTheFailureOfNobody) {
    begin(true);
    hear(Stop{RoundId{1}, "a node is lost"});
    feed(RoomForSuccessors{RoundId{1}});
    effects.clear();
    exits(1, 0, crash(0));
    EXPECT_FALSE(core.report().failure.has_value());
    EXPECT_TRUE(effects.empty());
}

TEST_F(AgentCoreOverlapTest, OldOnesKeepTheirTimeAndAreThenKilled) {
    begin(true);
    hear(Stop{RoundId{1}, "a node is lost"});
    pass(std::chrono::seconds(1));
    feed(RoomForSuccessors{RoundId{1}});
    assign(2);
    effects.clear();
    pass_answered(std::chrono::seconds(8));
    EXPECT_TRUE(all<SignalWorkers>().empty());
    pass_answered(std::chrono::seconds(2));
    ASSERT_EQ(all<SignalWorkers>().size(), 1U);
    const SignalWorkers kill = all<SignalWorkers>()[0];
    EXPECT_TRUE(kill.force());
    EXPECT_TRUE(kill.released);
    EXPECT_EQ(kill.round, RoundId{1});
    EXPECT_EQ(kill.local_ranks, (Ranks{0, 1}));
    pass_answered(std::chrono::minutes(1));
    EXPECT_EQ(core.report().state, NodeState::running);  // Whatever the old ones resist.
}

TEST_F(AgentCoreOverlapTest, ASecondStopWaitsForTheOldGeneration) {
    begin(true);
    hear(Stop{RoundId{1}, "a node is lost"});
    feed(RoomForSuccessors{RoundId{1}});
    assign(2);
    effects.clear();
    hear(Stop{RoundId{2}, "another node is lost"});
    EXPECT_FALSE(asks_for_room());
    feed(RoomForSuccessors{RoundId{2}});
    ends(2, 0, 1, crash(0, SIGTERM));
    ends(2, 1, 1, crash(1, SIGTERM));
    exits(1, 0, crash(0, SIGTERM));
    EXPECT_EQ(core.report().state, NodeState::stopping);
    exits(1, 1, crash(1, SIGTERM));
    EXPECT_EQ(core.report().state, NodeState::stopped);
    EXPECT_FALSE(core.report().failure.has_value());
    // And then the next may overlap again.
    assign(3);
    hear(Stop{RoundId{3}, "a third node is lost"});
    EXPECT_TRUE(asks_for_room());
}

TEST_F(AgentCoreOverlapTest, ARoundThatPausesWaitsForTheOldGenerationToo) {
    begin(true);
    hear(Stop{RoundId{1}, "a node joined"});
    feed(RoomForSuccessors{RoundId{1}});
    assign(2);
    feed(WorkerAttached{0, true, true, 1});
    feed(WorkerAttached{1, true, true, 1});
    hear(rendezvous::Prepare{RoundId{2}, false, "another node is drained"});
    feed(WorkerParked{0, RoundId{2}, true, 1});
    feed(WorkerParked{1, RoundId{2}, true, 1});
    EXPECT_EQ(core.report().state, NodeState::running);
    exits(1, 0, crash(0, SIGTERM));
    exits(1, 1, crash(1, SIGTERM));
    EXPECT_EQ(core.report().state, NodeState::stopped);
    EXPECT_FALSE(core.report().failure.has_value());
}

TEST_F(AgentCoreOverlapTest, ANodeWhoseWorkersHaveSucceededQuitsWhenTheOldOnesAreGoneToo) {
    begin(true);
    hear(Stop{RoundId{1}, "a node is lost"});
    feed(RoomForSuccessors{RoundId{1}});
    assign(2);
    ends(2, 0, 1, std::nullopt);
    ends(2, 1, 1, std::nullopt);
    EXPECT_EQ(core.report().state, NodeState::finished);
    hear(rendezvous::Dismissed{RoundId{2}});
    EXPECT_FALSE(quit().has_value());
    both_obey(1);
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->exit_code, 0);
}

TEST_F(AgentCoreOverlapTest, ARoundAfterOneThatHasSucceededWaitsForTheOldGenerationToo) {
    begin(true);
    hear(Stop{RoundId{1}, "a node is lost"});
    feed(RoomForSuccessors{RoundId{1}});
    assign(2);
    ends(2, 0, 1, std::nullopt);
    ends(2, 1, 1, std::nullopt);
    effects.clear();
    assign(3);
    EXPECT_TRUE(all<LaunchWorkers>().empty());
    exits(1, 0, crash(0, SIGTERM));
    EXPECT_EQ(core.report().state, NodeState::finished);
    EXPECT_TRUE(all<LaunchWorkers>().empty());
    exits(1, 1, crash(1, SIGTERM));
    EXPECT_EQ(all<LaunchWorkers>().size(), 1U);
    EXPECT_EQ(core.report().round, RoundId{3});
    EXPECT_EQ(core.report().state, NodeState::running);
}

TEST_F(AgentCoreOverlapTest, OldOnesThatResistHoldUpTheRoundAfterASuccessForAsLongAsAnyOther) {
    for (const bool killed_before : {false, true}) {
        begin(true);
        hear(Stop{RoundId{1}, "a node is lost"});
        feed(RoomForSuccessors{RoundId{1}});
        assign(2);
        ends(2, 0, 1, std::nullopt);
        ends(2, 1, 1, std::nullopt);
        exits(1, 0, crash(0, SIGTERM));
        pass_answered(std::chrono::seconds(killed_before ? 60 : 4));
        EXPECT_FALSE(quit().has_value()) << "nothing waits for them";
        effects.clear();
        assign(3);
        pass_answered(std::chrono::seconds(killed_before ? 9 : 15));
        ASSERT_FALSE(all<SignalWorkers>().empty());
        EXPECT_TRUE(all<SignalWorkers>().back().released);
        EXPECT_TRUE(all<SignalWorkers>().back().force());
        EXPECT_FALSE(quit().has_value());
        pass_answered(std::chrono::seconds(2));
        ASSERT_TRUE(quit().has_value());
        EXPECT_EQ(quit()->exit_code, kExitJobFailed);
        EXPECT_EQ(quit()->reason,
                  "1 worker(s) did not end even after SIGKILL; they are probably stuck in the "
                  "kernel");
        effects.clear();
    }
}

TEST_F(AgentCoreOverlapTest, ARoundThatEndsWhileItWaitsForTheOldOnesWasNotFinishedHere) {
    begin(true);
    hear(Stop{RoundId{1}, "a node is lost"});
    feed(RoomForSuccessors{RoundId{1}});
    assign(2);
    ends(2, 0, 1, std::nullopt);
    ends(2, 1, 1, std::nullopt);
    assign(3);
    hear(Stop{RoundId{3}, "another node is lost"});
    EXPECT_EQ(core.report().round, RoundId{3});
    EXPECT_EQ(core.report().state, NodeState::stopping);
    exits(1, 0, crash(0, SIGTERM));
    EXPECT_EQ(core.report().state, NodeState::stopping);
    exits(1, 1, crash(1, SIGTERM));
    EXPECT_EQ(core.report().state, NodeState::stopped);
    EXPECT_EQ(last_told(), NodeState::stopped);
}

TEST_F(AgentCoreOverlapTest, AlsoOneThatWasHeardOfByItsEndOnlyIsNotHeldUpWithoutALimit) {
    begin(true);
    hear(Stop{RoundId{1}, "a node is lost"});
    feed(RoomForSuccessors{RoundId{1}});
    assign(2);
    ends(2, 0, 1, std::nullopt);
    ends(2, 1, 1, std::nullopt);
    hear(Stop{RoundId{3}, "another node is lost"});
    EXPECT_EQ(core.report().state, NodeState::stopping);
    pass_answered(std::chrono::seconds(21));
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->exit_code, kExitJobFailed);
}

TEST_F(AgentCoreOverlapTest, ElasticWorkersParkAndNobodyIsStartedBesideThem) {
    begin(true);
    feed(WorkerAttached{0, true, true, 0});
    hear(Stop{RoundId{1}, "a node is lost"});
    EXPECT_FALSE(asks_for_room());
    feed(RoomForSuccessors{RoundId{1}});
    EXPECT_TRUE(all<ReleasePlaces>().empty());
}

}  // namespace
}  // namespace regroup::agent
