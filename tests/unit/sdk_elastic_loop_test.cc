// SPDX-License-Identifier: Apache-2.0
//
// Planned changes of the ranks, the end of a loop, and wrong use.
#include <barrier>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "tests/support/connections.h"
#include "tests/support/errors.h"
#include "tests/unit/sdk_elastic_ranks.h"

namespace regroup::testing {
namespace {

TEST_F(ElasticLoopTest, DrainSuspendsAllRanksAtTheSameStep) {
    Script script;
    script.after_commit = [this](Rank& rank, ElasticStep& step) {
        if (rank.round == 1 && step.number() == 3 && rank.name == "b") {
            agent_.pause("b", 1, true);
        }
    };
    std::atomic<std::uint64_t> left_at = 0;
    script.on_leave = [&](Rank& /*rank*/, const ElasticLeave& leave) {
        left_at = leave.step;
        EXPECT_EQ(leave.reason, "a drain");
        EXPECT_GT(leave.deadline, std::chrono::steady_clock::now());
    };
    assign({"a", "b", "c"}, script);
    EXPECT_EQ(finished("b").ending, Ending::left);
    EXPECT_EQ(agent_.await<Suspended>("a"),
              (Suspended{.round = 1, .step = left_at, .at_boundary = true}));
    EXPECT_EQ(agent_.await<Suspended>("c"),
              (Suspended{.round = 1, .step = left_at, .at_boundary = true}));
    EXPECT_EQ(finished("b").replica.history.size(), left_at);
    assign({"a", "c"});
    expect_complete({"a", "c"});
}

TEST_F(ElasticLoopTest, JobGrowsWithoutRepeatingAStep) {
    Script script;
    std::atomic<int> repeated = 0;
    std::atomic<int> pauses = 0;
    script.before_reduction = [&](Rank& rank, ElasticStep& step) {
        repeated += rank.replica.history.size() == step.number() ? 0 : 1;
        EXPECT_FALSE(step.pauses());
    };
    script.after_commit = [&](Rank& rank, ElasticStep& step) {
        pauses += step.pauses() ? 1 : 0;
        if (rank.round == 1 && step.number() == 4 && rank.name == "a") {
            agent_.pause("a", 1, false);
        }
    };
    assign({"a", "b"}, script);
    const auto suspended = agent_.await<Suspended>("a");
    EXPECT_EQ(agent_.await<Suspended>("b"), suspended);
    assign({"a", "b", "new"}, script);
    expect_complete({"a", "b", "new"});
    EXPECT_EQ(repeated, 0);
    EXPECT_EQ(pauses, 2);  // Both ranks know of one boundary.
    EXPECT_EQ(finished("new").rounds.front().second, suspended.step);
}

TEST_F(ElasticLoopTest, RanksFinishWhenAPeerDiesAtTheFinish) {
    Script script;
    script.on_round = [](Rank& rank, const ElasticRound& /*round*/) {
        rank.script.steps = rank.name == "b" && rank.round == 1 ? kSteps + 100 : kSteps;
    };
    script.before_reduction = [](Rank& rank, ElasticStep& step) {
        if (rank.name == "b" && step.number() == kSteps) {
            throw Died{};  // The others are in finish().
        }
    };
    assign({"a", "b", "c"}, script);
    lose("b", {"a", "c"});
    assign({"a", "c"});
    expect_complete({"a", "c"});
}

TEST_F(ElasticLoopTest, FinishedRankReportsNoBrokenConnection) {
    // The loops and their groups still exist, as in a process that outlives its peers.
    std::map<std::string, ProcessGroup*> groups;
    std::mutex mutex;
    std::barrier<> both(2);
    Script script;
    script.on_round = [&](Rank& rank, const ElasticRound& round) {
        const std::lock_guard lock(mutex);
        groups[rank.name] = round.group;
    };
    script.after_run = [&](Rank& rank) {
        both.arrive_and_wait();
        if (rank.name == "a") {
            sever_connections();
        }
        // The group reports a broken connection before its operations fail.
        EXPECT_TRUE(error_of([&] {
            while (true) {
                groups.at(rank.name)->barrier().wait();
            }
        }));
        both.arrive_and_wait();
    };
    assign({"a", "b"}, script);
    expect_complete({"a", "b"});
    for (const char* const name : {"a", "b"}) {
        EXPECT_FALSE(agent_.has_said<worker_link::PeerLost>(name)) << name;
    }
}

TEST_F(ElasticLoopTest, CheckpointOfAnyRankReachesAllRanks) {
    const auto places = rounds_.begin(2);
    Script script;
    start("a", places[0], script);
    Script loaded;
    loaded.resume_at = {4, 4 * kBatch};
    loaded.steps = kSteps;
    ranks_["b"].replica.totals = {24, 276};
    ranks_["b"].replica.history = "tttt";
    start("b", places[1], loaded);
    expect_complete({"a", "b"});
    EXPECT_EQ(finished("a").rounds.front().second, 4U);
}

TEST_F(ElasticLoopTest, UserErrorEndsTheLoopAndReachesTheOthers) {
    Script script;
    script.before_commit = [](Rank& rank, ElasticStep& step) {
        if (rank.name == "b" && step.number() == 2) {
            throw std::runtime_error("the data is bad");
        }
    };
    assign({"a", "b"}, script);
    ASSERT_TRUE(finished("b").error);
    EXPECT_STREQ(finished("b").error->what(), "the data is bad");
    rounds_.end({"a"});
    assign({"a"});
    expect_complete({"a"});
}

TEST_F(ElasticLoopTest, RankThatLosesItsPeersSuspendsWithoutWordFromTheAgent) {
    // Both ranks live, but their connection is broken. Only the ranks can tell their agent. They
    // keep their state until the next round.
    Script script;
    script.before_reduction = [](Rank& rank, ElasticStep& step) {
        if (step.number() != 3 || rank.round != 1) {
            return;
        }
        step.group().barrier().wait();  // Both have passed the last vote.
        if (rank.name == "b") {
            throw Error(Errc::disconnected, "the connection to rank 0 broke");
        }
    };
    assign({"a", "b"}, script);
    const auto remark = agent_.await<worker_link::Remark>("b");
    EXPECT_NE(remark.text.find("rank 1 has lost its peers in round 1"), std::string::npos);
    EXPECT_NE(remark.text.find("the connection to rank 0 broke"), std::string::npos);
    EXPECT_EQ(agent_.await<Suspended>("b"), (Suspended{.round = 1, .step = 3}));
    EXPECT_EQ(agent_.await<Suspended>("a"), (Suspended{.round = 1, .step = 3}));
    EXPECT_EQ(agent_.page("a").phase, worker_link::Phase::suspended);
    EXPECT_EQ(agent_.page("a").ended_round, 0U);
    assign({"a", "b"});
    expect_complete({"a", "b"});
    EXPECT_EQ(finished("b").rounds.back(), (std::pair<std::uint64_t, std::uint64_t>(2, 3)));
}

TEST_F(ElasticLoopTest, StepWithoutCommitOrFinishIsRefused) {
    const auto loop = elastic::Loop::make({}, Context(), nullptr);
    EXPECT_THAT(error_of([&] { loop->run({.on_step = [](ElasticStep& /*step*/) {}}); }),
                is_error(Errc::invalid_argument, "without commit() or finish()"));
}

/// Returns the process that calls commit() and ends, with code 7 if that is refused.
pid_t fork_into_commit(ElasticStep& step) {
    const pid_t child = ::fork();
    if (child == 0) {
        const auto error = error_of([&] { step.commit([] {}); });
        ::_exit(error && error->code() == Errc::invalid_argument ? 7 : 1);
    }
    return child;
}

TEST_F(ElasticLoopTest, ForkedChildThatUnwindsALoopEndsNoTraining) {
    const auto loop = elastic::Loop::make({}, Context(), nullptr);
    pid_t child = -1;
    const Ending ending = loop->run({.on_step = [&](ElasticStep& step) {
        if (step.number() == 2) {
            return step.finish();
        }
        if (step.number() == 1) {
            child = fork_into_commit(step);
        }
        step.commit([] {});
    }});
    EXPECT_EQ(ending, Ending::finished);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST_F(ElasticLoopTest, FailureOfAForkedChildIsNotToldToTheAgent) {
    Script script;
    script.before_commit = [](Rank& rank, ElasticStep& step) {
        if (rank.name != "b" || step.number() != 2) {
            return;
        }
        const pid_t child = ::fork();
        if (child == 0) {
            throw std::runtime_error("the data loader is out of files");
        }
        int status = 0;
        EXPECT_EQ(::waitpid(child, &status, 0), child);
        EXPECT_EQ(WEXITSTATUS(status), 7);
    };
    script.at_end = [parent = ::getpid()](Rank& rank) {
        if (::getpid() != parent) {
            ::_exit(rank.error ? 7 : 8);
        }
    };
    assign({"a", "b"}, script);
    expect_complete({"a", "b"});
    EXPECT_FALSE(agent_.has_said<worker_link::Fatal>("b"));
}

TEST(ElasticLoops, SecondLoopIsRefusedUntilTheFirstHasEnded) {
    for (const char* const name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
        ::unsetenv(name);
    }
    auto first = std::make_unique<ElasticLoop>();
    EXPECT_THAT(error_of([] { const ElasticLoop second; }), is_error(Errc::invalid_argument));
    first.reset();
    ElasticLoop next;
    EXPECT_EQ(next.run({.on_step = [](ElasticStep& step) { step.finish(); }}), Ending::finished);
    const ElasticLoop last;  // The one before is over, though it lives.
}

TEST_F(ElasticLoopTest, RanksThatDisagreeAboutTheLastStepAreNamedAndTheJobEnds) {
    for (const bool in_reduction : {true, false}) {
        SCOPED_TRACE(in_reduction ? "at the next reduction" : "at the vote");
        const auto places = rounds_.begin(3);
        const std::string prefix = in_reduction ? "reduction-" : "vote-";
        const Names names{prefix + "a", prefix + "b", prefix + "c"};
        for (std::size_t i = 0; i < names.size(); ++i) {
            Script script;
            script.before_commit = [in_reduction, i](Rank& /*rank*/, ElasticStep& step) {
                if (!in_reduction && i == 1 && step.number() == 5) {
                    step.finish();
                }
            };
            script.steps = in_reduction && i == 1 ? 5 : kSteps;
            start(names[i], places[i], script);
        }
        for (const std::string& name : names) {
            ASSERT_TRUE(finished(name).error) << name;
            EXPECT_EQ(finished(name).error->code(), Errc::invalid_argument);
            EXPECT_STREQ(finished(name).error->what(),
                         "step 5: rank 1 has called finish(), and ranks 0, 2 have not; all ranks "
                         "must call it in the same step");
            const auto fatal = agent_.await<worker_link::Fatal>(name);
            EXPECT_EQ(fatal.kind, worker_link::FatalKind::user_error);
            EXPECT_EQ(fatal.text, finished(name).error->what());
        }
    }
}

TEST_F(ElasticLoopTest, OtherMistakesAreNotReportedAsFinishDisagreement) {
    const auto places = rounds_.begin(2);
    for (const std::size_t i : {0U, 1U}) {
        Script script;
        script.before_commit = [i](Rank& /*rank*/, ElasticStep& step) {
            if (i == 1 && step.number() == 3) {
                std::vector<float> value(7);
                step.group().all_reduce(std::span<float>(value), ReduceOp::max).wait();
            }
        };
        start(i == 0 ? "a" : "b", places[i], script);
    }
    for (const std::string name : {"a", "b"}) {
        ASSERT_TRUE(finished(name).error) << name;
        EXPECT_NE(std::string(finished(name).error->what()).find("the ranks do not agree"),
                  std::string::npos);
    }
}

TEST_F(ElasticLoopTest, MistakeOfAFinishingRankKeepsItsMessage) {
    const auto places = rounds_.begin(2);
    Script mistaken;
    mistaken.before_commit = [](Rank& /*rank*/, ElasticStep& step) {
        if (step.number() == 3) {
            step.context().store()->wait({"elastic/finish"}, kPatience);
            step.take(kBatch);
        }
    };
    start("a", places[0], mistaken);
    Script early;
    early.before_commit = [](Rank& /*rank*/, ElasticStep& step) {
        if (step.number() == 3) {
            step.finish();
        }
    };
    start("b", places[1], early);
    ASSERT_TRUE(finished("a").error);
    EXPECT_NE(std::string(finished("a").error->what()).find("take() was called before"),
              std::string::npos);
    agent_.end_round("b", 1, "a has failed");
    ASSERT_TRUE(agent_.await<Suspended>("b").round == 1);
    agent_.hang_up("b");
}

TEST_F(ElasticLoopTest, SecondTakeOrCommitInAStepIsRefused) {
    const auto loop = elastic::Loop::make({}, Context(), nullptr);
    const auto refused = [](const std::function<void()>& call) {
        const auto error = error_of(call);
        return error && error->code() == Errc::invalid_argument;
    };
    loop->run({.on_step = [&](ElasticStep& step) {
        if (step.number() == 1) {
            EXPECT_EQ(step.samples_begin(), 5U);
            return step.finish();
        }
        step.take(5);
        EXPECT_TRUE(refused([&] { step.take(5); }));
        step.commit([] {});
        EXPECT_TRUE(refused([&] { step.commit([] {}); }));
        EXPECT_TRUE(refused([&] { step.finish(); }));
        EXPECT_TRUE(refused([&] { step.take(1); }));
    }});
    EXPECT_TRUE(refused([&] { loop->run({.on_step = [](ElasticStep&) {}}); }));
}

TEST_F(ElasticLoopTest, PageShowsThePhaseOfTheRank) {
    std::promise<void> seen;
    const std::shared_future<void> go_on = seen.get_future().share();
    Script script;
    script.before_reduction = [&](Rank& rank, ElasticStep& step) {
        if (rank.name == "b" && step.number() == 3) {
            const auto section = step.section("loading data");
            go_on.wait();
        }
    };
    assign({"a", "b"}, script);
    worker_link::WorkerPage& b = agent_.page("b");
    worker_link::WorkerPage& a = agent_.page("a");
    while (b.phase != worker_link::Phase::section || a.waiting == 0) {
        std::this_thread::yield();
    }
    EXPECT_STREQ(b.section.data(), "loading data");
    EXPECT_EQ(b.step, 3U);
    EXPECT_EQ(b.round, 1U);
    EXPECT_EQ(b.operations_issued, b.operations_done);
    EXPECT_EQ(a.phase, worker_link::Phase::training);
    EXPECT_STREQ(a.section.data(), "all_reduce");
    EXPECT_EQ(a.operations_issued, a.operations_done + 1);
    seen.set_value();
    expect_complete({"a", "b"});
}

}  // namespace
}  // namespace regroup::testing
