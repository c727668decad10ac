// SPDX-License-Identifier: Apache-2.0
//
// Checks that the recovery checkers detect violations: steps, planned changes, drains, restarted
// daemons.
#include <csignal>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rendezvous/base/exit_code.h"
#include "tests/simulation/checker_samples.h"
#include "tests/simulation/simulation.h"

namespace regroup::simulation {
namespace {

using namespace rendezvous;
using std::chrono::minutes;
using std::chrono::seconds;
using testing::HasSubstr;

Assignment assignment(std::uint64_t round) {
    Assignment result;
    result.round = RoundId{round};
    result.reason = "test";
    return result;
}

class RecoveryCheckersTest : public CheckerFixture {
   protected:
    void watch(std::unique_ptr<Checker> one) {
        checker = std::move(one);
        checker->on_job(now, policy);
        checker->on_agent_start(now, 0);
        now += minutes(2);  // The start is long ago.
    }
    void agent_does(const agent::AgentEffect& effect) {
        checker->on_agent_effect(now, 0, idle, effect);
    }
    void agent_hears(const agent::AgentEvent& event) { checker->on_agent_event(now, 0, event); }
    void form(std::uint64_t round, std::uint64_t step, const std::vector<MemberView>& members) {
        checker->on_group_formed(now, {round, RoundId{round}}, step, members);
    }
    void vote(std::uint64_t round, bool suspend = false) {
        checker->on_vote(now, {round, RoundId{round}}, suspend);
    }
    void commit(std::uint64_t life, std::uint64_t round, std::uint64_t step) {
        checker->on_commit(now, 0, life, {round, RoundId{round}}, step);
    }
};

TEST_F(RecoveryCheckersTest, EveryRankCommitsEachVotedStepOnce) {
    watch(make_steps_checker());
    form(1, 0, {{0, 11, 0}, {1, 12, 0}});
    vote(1);
    commit(11, 1, 1);
    commit(12, 1, 1);
    vote(1);
    commit(11, 1, 2);
    EXPECT_EQ(violation(), "");
    commit(11, 1, 3);
    EXPECT_THAT(violation(), HasSubstr("step 3 was committed by a rank at step 2, after 2 votes"));
}

TEST_F(RecoveryCheckersTest, RoundVotesOnlyAfterAllRanksHaveAppliedTheLastStep) {
    watch(make_steps_checker());
    form(1, 0, {{0, 11, 0}, {1, 12, 0}});
    vote(1);
    commit(11, 1, 1);
    vote(1);
    EXPECT_EQ(violation(), "round 1 voted again before all had applied the last step");
}

TEST_F(RecoveryCheckersTest, RoundStartsFromTheMostAdvancedState) {
    watch(make_steps_checker());
    form(1, 0, {{0, 11, 4}, {1, 12, 0}});
    EXPECT_EQ(violation(), "round 1 began at step 0, but a member had reached step 4");
}

TEST_F(RecoveryCheckersTest, SurvivorsDifferByOneStepAtMost) {
    watch(make_steps_checker());
    form(1, 0, {{0, 11, 0}, {1, 12, 0}});
    form(2, 2, {{0, 11, 2}, {1, 12, 0}});
    EXPECT_EQ(violation(), "survivors of round 1 differ by more than one step: 0 and 2");
}

TEST_F(RecoveryCheckersTest, StaleRoundDoesNotVote) {
    watch(make_steps_checker());
    form(1, 0, {{0, 11, 0}, {1, 12, 0}});
    form(2, 0, {{0, 11, 0}});
    vote(2);
    EXPECT_EQ(violation(), "");
    vote(1);
    EXPECT_EQ(violation(), "round 1 voted although a member of it is in round 2");
}

TEST_F(RecoveryCheckersTest, LeavingRankSavesTheLastStep) {
    watch(make_steps_checker());
    form(1, 0, {{0, 11, 0}, {1, 12, 0}});
    vote(1, true);
    checker->on_saved(now, 0, 11, {1, RoundId{1}}, 1);
    EXPECT_EQ(violation(), "");
    checker->on_saved(now, 0, 12, {1, RoundId{1}}, 0);
    EXPECT_EQ(violation(), "host 0 saved step 0 to leave, but round 1 ended at step 1");
}

TEST_F(RecoveryCheckersTest, HolderOfTheStateIsNotLeftOutUnlessItsTrainingIsFinished) {
    policy.nodes_max = 3;
    core = RendezvousCore(policy);
    for (const bool is_finished : {true, false}) {
        watch(make_steps_checker());
        form(1, 0, {{0, 11, 0}, {1, 12, 0}});
        vote(1);
        commit(11, 1, 1);
        checker->on_worker_suspended(now, 0, RoundId{1});
        if (is_finished) {
            checker->on_process_finished(now, 11);
        }
        View view;
        view.rendezvous = &core;
        view.hosts.resize(1);
        view.hosts[0].agent = &idle;
        view.hosts[0].node = "a";
        view.hosts[0].undisturbed_since = kStart;
        checker->on_tick(now, view);
        now += seconds(30);
        form(2, 0, {{1, 12, 0}});
        EXPECT_EQ(violation(), is_finished ? ""
                                           : "round 2 began at step 0 without host 0, which was "
                                             "present and had reached step 1");
    }
}

TEST_F(RecoveryCheckersTest, SuspendedWorkerIsNotEnded) {
    watch(make_keep_checker());
    agent_hears(agent::WorkerSuspended{0, RoundId{1}});
    agent_does(agent::SignalWorkers{RoundId{1}, SIGKILL, false, {1}});
    EXPECT_EQ(violation(), "");
    agent_does(agent::SignalWorkers{RoundId{1}, SIGKILL, false, {0}});
    EXPECT_EQ(violation(), "worker 0 of host 0 was ended although it was suspended");
}

TEST_F(RecoveryCheckersTest, LeavingNodeEndsOnlyWorkersWithoutStateAtOnce) {
    for (const bool trained : {true, false}) {
        watch(make_keep_checker());
        if (trained) {
            agent_does(agent::LaunchWorkers{assignment(1), {0}});
        } else {
            agent_does(agent::PrestartWorkers{{0}});
        }
        agent_hears(agent::WorkerSuspended{0, trained ? RoundId{1} : RoundId::none});
        agent_does(agent::PauseWorkers{RoundId{1}, true, seconds(5), {}});
        agent_does(agent::SignalWorkers{RoundId{1}, SIGKILL, false, {0}, true});
        // Its time to end is over.
        agent_does(agent::SignalWorkers{RoundId{1}, SIGKILL, false, {0}});
        EXPECT_EQ(violation().empty(), !trained) << violation();
    }
}

TEST_F(RecoveryCheckersTest, SuspendedWorkerIsNotReplaced) {
    watch(make_keep_checker());
    agent_hears(agent::WorkerSuspended{0, RoundId{1}});
    agent_does(agent::LaunchWorkers{assignment(2), {0}});
    EXPECT_EQ(violation(), "host 0 launched a worker in place of worker 0, which is suspended");
}

TEST_F(RecoveryCheckersTest, PlannedChangeAbortsNoWorkerUnlessAFaultOccurs) {
    for (const bool trouble : {true, false}) {
        watch(make_prepare_checker());
        checker->on_daemon_effects(now, core, {{"a", Prepare{RoundId{1}, false, "growth"}}});
        if (trouble) {
            checker->on_trouble(now, now);
        }
        now += seconds(1);
        checker->on_aborted(now, 0, 11, RoundId{1}, true);
        EXPECT_EQ(violation().empty(), trouble) << violation();
    }
}

TEST_F(RecoveryCheckersTest, AgentExitsForRequeueOnlyAfterItsWorkersHaveSaved) {
    for (const bool saved : {true, false}) {
        watch(make_drain_checker());
        agent_does(agent::BeginRound{assignment(1)});
        agent_does(agent::LaunchWorkers{assignment(1), {0}});
        if (saved) {
            checker->on_saved(now, 0, 11, {1, RoundId{1}}, 5);
        }
        agent_does(agent::Quit{kExitRequeue, 0, {}});
        EXPECT_EQ(violation().empty(), saved) << violation();
    }
}

TEST_F(RecoveryCheckersTest, WorkerThatFailsCountsAsUnsavedThoughItsPeersHaveSaved) {
    for (const bool both : {true, false}) {
        watch(make_drain_checker());
        agent_does(agent::BeginRound{assignment(1)});
        agent_does(agent::LaunchWorkers{assignment(1), {0, 1}});
        checker->on_saved(now, 0, 11, {1, RoundId{1}}, 5);
        checker->on_saved(now, 0, 12, {1, RoundId{1}}, 5);
        checker->on_process_end(now, 0, 11, true);
        checker->on_process_end(now, 0, 12, both);
        agent_does(agent::Quit{kExitRequeue, 0, {}});
        EXPECT_EQ(violation().empty(), both) << violation();
    }
}

TEST_F(RecoveryCheckersTest, ReplayedDecisionsMatchTheRecordedOnes) {
    watch(make_replay_checker());
    checker->on_replayed(now, {{"a", Alive{RoundId{1}}}}, {{"a", Alive{RoundId{1}}}});
    EXPECT_EQ(violation(), "");
    checker->on_replayed(now, {{"a", Assign{assignment(1)}}}, {{"a", Assign{assignment(2)}}});
    EXPECT_THAT(violation(), HasSubstr("but its records say"));
}

TEST_F(RecoveryCheckersTest, ReturningDaemonEndsNoHealthyRound) {
    for (const bool trouble : {true, false}) {
        watch(make_return_checker());
        RendezvousCore running(policy);
        Offer offer;
        offer.name = "a";
        (void)running.step(now, NodeJoined{"a", policy, offer, {}});
        ASSERT_EQ(running.phase(), Phase::training);
        checker->on_daemon_gone(now);
        if (trouble) {
            checker->on_process_end(now, 0, 11, false);
        }
        now += seconds(1);
        checker->on_daemon_restored(now, running);
        checker->on_daemon_effects(now, running, {{"a", Stop{running.round(), "why"}}});
        EXPECT_EQ(violation().empty(), trouble) << violation();
    }
}

TEST_F(RecoveryCheckersTest, AgentEndsNoRoundWhileTheDaemonIsAway) {
    for (const bool exited : {true, false}) {
        watch(make_headless_checker());
        agent_hears(agent::LinkUp{});
        agent_hears(agent::LinkDown{});
        if (exited) {
            agent_hears(agent::WorkerExited{RoundId{1}, 0, WorkerFailure{}});
        }
        agent_does(agent::EndRound{RoundId{1}, {0}, {}});
        EXPECT_EQ(violation().empty(), exited) << violation();
    }
}

TEST_F(RecoveryCheckersTest, RecoveryTimesMustBePossible) {
    watch(make_incident_checker());
    checker->on_daemon_effects(now, core, {{"a", Assign{assignment(1)}}});
    now += seconds(30);
    Incident incident;
    incident.round = RoundId{1};
    incident.next_round = RoundId{2};
    incident.cause = "rank 1 on b ended by SIGKILL";
    incident.stop = seconds(20);
    checker->on_daemon_effects(now, core, {{"a", Recovered{incident}}});
    EXPECT_EQ(violation(), "");
    incident.stop = seconds(200);
    checker->on_daemon_effects(now, core, {{"a", Recovered{incident}}});
    EXPECT_THAT(violation(), HasSubstr("took longer than there was time"));
}

TEST_F(RecoveryCheckersTest, RecoveredNodesAreToldOfTheRecovery) {
    watch(make_incident_checker());
    Offer offer;
    offer.name = "a";
    RendezvousCore running(policy);
    (void)running.step(now, NodeJoined{"a", policy, offer, {}});
    checker->on_daemon_effects(now, running, {{"a", Assign{assignment(0)}}});
    checker->on_daemon_effects(now, running, {{"a", Assign{assignment(1)}}});
    vote(1);
    now += minutes(1);
    View view;
    view.rendezvous = &running;
    checker->on_calm(now, view);
    EXPECT_THAT(violation(), HasSubstr("no node was told of the recovery to round 1"));
}

// ---- Leaving between two rounds.

TEST_F(RecoveryCheckersTest, NodeLeftBehindByALaterRoundSavesNothing) {
    watch(make_leave_checker());
    form(1, 4, {{0, 11, 4}, {1, 12, 4}});
    form(2, 4, {{1, 12, 4}});
    commit(12, 2, 5);
    checker->on_left(now, 0, 11, 4);
    EXPECT_EQ(violation(), "") << "the agent may not have known when it told the worker to leave";
    now += minutes(1);
    checker->on_left(now, 0, 11, 4);
    EXPECT_EQ(violation(), "host 0 left with step 4 saved, and a later round had come to step 5");
}

TEST_F(RecoveryCheckersTest, UnreachableOrEndingNodeMaySaveAnOlderStep) {
    for (const bool unheard : {true, false}) {
        watch(make_leave_checker());
        form(1, 4, {{0, 11, 4}, {1, 12, 4}});
        form(2, 4, {{1, 12, 4}});
        commit(12, 2, 5);
        if (!unheard) {
            checker->on_agent_event(now, 0, agent::QuitRequested{SIGTERM});
        }
        now += minutes(5);
        if (unheard) {
            checker->on_daemon_gone(now);
        }
        checker->on_left(now, 0, 11, 4);
        EXPECT_EQ(violation(), "");
    }
}

}  // namespace
}  // namespace regroup::simulation
