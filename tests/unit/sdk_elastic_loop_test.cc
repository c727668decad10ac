// SPDX-License-Identifier: Apache-2.0
#include <regroup/elastic_loop.h>
#include <regroup/error.h>

#include <atomic>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/fake_agent.h"
#include "worker_sdk/src/elastic/loop.h"
#include "worker_sdk/src/link/assigned_context.h"

namespace regroup::testing {
namespace {

using worker_link::AssignWorker;
using worker_link::Parked;
using worker_link::Resumed;

constexpr std::chrono::seconds kPatience{60};
constexpr std::uint64_t kSteps = 12;
constexpr std::uint64_t kBatch = 6;

/// Leaves `run` as a death does: without a word to the others. No std::exception.
struct Died {};

/// What a rank trains: the number of samples, and the sum of their positions.
struct Replica {
    std::vector<std::int64_t> totals{0, 0};
    std::string history;  // "t" for each step, kept as a value
};

struct Rank;
using Hook = std::function<void(Rank&, ElasticStep&)>;

/// Where a rank does something special; each is optional.
struct Script {
    Hook before_reduction = {};
    Hook before_commit = {};
    Hook after_commit = {};
    std::function<void(Rank&, const ElasticRound&)> on_round = {};
    std::function<void(Rank&)> on_save = {};
    std::function<void(Rank&, const ElasticLeave&)> on_leave = {};
    ElasticOptions options = {};
    std::uint64_t steps = kSteps;
    std::optional<std::pair<std::uint64_t, std::uint64_t>> resume_at = {};
};

/// One worker: a thread that trains.
struct Rank {
    std::string name;
    Script script;
    Replica replica;
    std::uint64_t round = 0;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> rounds;  // number, step before it
    std::optional<Ending> ending;
    std::optional<Error> error;
    bool died = false;

    void train(ElasticLoop& loop) {
        loop.keep("totals", TensorView(std::span<std::int64_t>(replica.totals)));
        loop.keep(
            "history",
            [this] {
                if (script.on_save) {
                    script.on_save(*this);
                }
                return replica.history;
            },
            [this](std::string_view bytes) { replica.history = std::string(bytes); });
        if (script.resume_at) {
            loop.resume_at(script.resume_at->first, script.resume_at->second);
        }
        ElasticCallbacks callbacks;
        callbacks.on_round = [this](const ElasticRound& now) {
            round = now.context->round;
            rounds.emplace_back(round, now.step);
            if (script.on_round) {
                script.on_round(*this, now);
            }
        };
        callbacks.on_step = [this](ElasticStep& step) { carry_out(step); };
        callbacks.on_leave = [this](const ElasticLeave& leave) {
            if (script.on_leave) {
                script.on_leave(*this, leave);
            }
        };
        ending = loop.run(callbacks);
    }

    void carry_out(ElasticStep& step) {
        if (step.number() == script.steps) {
            return step.finish();
        }
        const SampleRange range = step.take(kBatch);
        std::vector<std::int64_t> sum{0, 0};
        for (std::uint64_t at = range.first + step.context().rank; at < range.last;
             at += step.context().world_size) {
            sum[0] += 1;
            sum[1] += static_cast<std::int64_t>(at);
        }
        call(script.before_reduction, step);
        step.group().all_reduce(TensorView(std::span<std::int64_t>(sum)), ReduceOp::sum).wait();
        call(script.before_commit, step);
        step.commit([&] {
            replica.totals[0] += sum[0];
            replica.totals[1] += sum[1];
            replica.history += "t";
        });
        call(script.after_commit, step);
    }
    void call(const Hook& hook, ElasticStep& step) {
        if (hook) {
            hook(*this, step);
        }
    }
};

class ElasticLoopTest : public ::testing::Test {
   protected:
    using Names = std::vector<std::string>;

    ~ElasticLoopTest() override { join(); }

    void start(const std::string& name, const AssignWorker& place, Script script = {}) {
        Rank& rank = ranks_[name];
        rank.name = name;
        rank.script = std::move(script);
        threads_[name] = std::thread([this, &rank, place] { live(rank, place); });
    }
    void start_all(const Names& names, const Script& script = {}) {
        const auto places = rounds_.begin(names.size());
        for (std::size_t i = 0; i < names.size(); ++i) {
            start(names[i], places[i], script);
        }
    }
    Rank& finished(const std::string& name) {
        if (threads_[name].joinable()) {
            threads_[name].join();
        }
        return ranks_[name];
    }
    void join() {
        for (auto& [name, thread] : threads_) {
            if (thread.joinable()) {
                thread.join();
            }
        }
    }
    void expect_complete(const Names& names) {
        for (const std::string& name : names) {
            const Rank& rank = finished(name);
            EXPECT_EQ(rank.ending, Ending::finished)
                << name << ": " << (rank.error ? rank.error->what() : "");
            constexpr auto kAll = static_cast<std::int64_t>(kSteps * kBatch);
            EXPECT_EQ(rank.replica.totals, (std::vector<std::int64_t>{kAll, kAll * (kAll - 1) / 2}))
                << name;
            EXPECT_EQ(rank.replica.history, std::string(kSteps, 't')) << name;
        }
    }
    /// A script in which `name` dies at `where` of step `step` in round 1.
    static Script dies(const std::string& name, Hook Script::* where, std::uint64_t step) {
        Script script;
        script.*where = [name, step](Rank& rank, ElasticStep& now) {
            if (rank.name == name && now.number() >= step && rank.round == 1) {
                throw Died{};
            }
        };
        return script;
    }

    FakeAgent agent_;
    FakeRounds rounds_{agent_};
    std::map<std::string, Rank> ranks_;
    std::map<std::string, std::thread> threads_;

   private:
    void live(Rank& rank, const AssignWorker& place) {
        auto link = link::AgentLink::attach(agent_.socket(), rank.name);
        if (!link) {
            ADD_FAILURE() << link.error().detail;
            return;
        }
        Context base;
        base.agent_store = true;
        base.store_timeout = kPatience;
        rank.script.options.timeout = kPatience;
        const auto loop =
            elastic::Loop::make(rank.script.options, link::context_of(base, place), *link);
        try {
            rank.train(*loop);
        } catch (const Died&) {
            rank.died = true;
        } catch (const Error& error) {
            rank.error = error;
        } catch (const std::exception& error) {
            rank.error = Error(Errc::system, error.what());
        }
    }
};

TEST_F(ElasticLoopTest, TrainsToTheEnd) {
    start_all({"a", "b", "c"});
    expect_complete({"a", "b", "c"});
    EXPECT_EQ(finished("a").rounds.size(), 1U);
    EXPECT_EQ(agent_.await<Resumed>("a").step, 1U);
    // Whatever the process does now, it does as any program.
    EXPECT_EQ(agent_.page("a").finished, 1U);
    EXPECT_FALSE(agent_.await<worker_link::Hello>("a").elastic);
}

TEST_F(ElasticLoopTest, APeerThatDiesBeforeTheReduction) {
    start_all({"a", "b", "c"}, dies("b", &Script::before_reduction, 5));
    EXPECT_TRUE(finished("b").died);
    rounds_.end({"a", "c"});
    rounds_.assign({"a", "c"});
    expect_complete({"a", "c"});
    EXPECT_EQ(finished("a").rounds.back(), (std::pair<std::uint64_t, std::uint64_t>(2, 5)));
}

TEST_F(ElasticLoopTest, APeerThatDiesInsteadOfVoting) {
    start_all({"a", "b", "c"}, dies("a", &Script::before_commit, 5));
    EXPECT_TRUE(finished("a").died);
    rounds_.end({"b", "c"});
    rounds_.assign({"b", "c"});
    expect_complete({"b", "c"});
    EXPECT_EQ(finished("b").rounds.back().second, 5U);
}

TEST_F(ElasticLoopTest, APeerThatDiesAfterACommitHasTakenItsStepWithIt) {
    start_all({"a", "b", "c"}, dies("c", &Script::after_commit, 5));
    EXPECT_TRUE(finished("c").died);
    rounds_.end({"a", "b"});
    const auto places = rounds_.begin(3);
    start("fresh", places[0]);
    agent_.send("a", places[1]);
    agent_.send("b", places[2]);
    expect_complete({"fresh", "a", "b"});
}

TEST_F(ElasticLoopTest, AFreshRankTakesAllStateFromTheSurvivors) {
    Script script = dies("a", &Script::before_commit, 7);
    start_all({"a", "b"}, script);
    EXPECT_TRUE(finished("a").died);
    rounds_.end({"b"});
    const auto places = rounds_.begin(2);
    start("fresh", places[0]);
    agent_.send("b", places[1]);
    expect_complete({"fresh", "b"});
    EXPECT_EQ(finished("fresh").rounds.front(), (std::pair<std::uint64_t, std::uint64_t>(2, 7)));
}

TEST_F(ElasticLoopTest, ARankThatIsBehindByTheLastStepGetsIt) {
    // One hears of the end of the round between its vote and its commit, the other after.
    Script script;
    script.after_commit = [this](Rank& rank, ElasticStep& step) {
        if (rank.name == "a" && step.number() == 4 && rank.round == 1) {
            agent_.end_round("a", 1, "test");
            agent_.end_round("b", 1, "test");
        }
    };
    start_all({"a", "b"}, script);
    for (const char* const name : {"a", "b"}) {
        EXPECT_EQ(agent_.await<Parked>(name).round, 1U);
    }
    rounds_.assign({"a", "b"});
    expect_complete({"a", "b"});
}

TEST_F(ElasticLoopTest, TheSourceOfTheStateDiesWhileItIsSent) {
    Script script = dies("a", &Script::before_reduction, 3);
    script.on_save = [](Rank& rank) {
        if (rank.name == "b" && rank.round == 1 && rank.replica.history.size() == 3) {
            throw Died{};
        }
    };
    start_all({"a", "b", "c"}, script);
    EXPECT_TRUE(finished("a").died);
    rounds_.end({"b", "c"});
    auto places = rounds_.begin(3);
    agent_.send("b", places[0]);
    agent_.send("c", places[1]);
    start("fresh", places[2]);
    EXPECT_TRUE(finished("b").died);
    rounds_.end({"c", "fresh"});
    rounds_.assign({"c", "fresh"});
    expect_complete({"c", "fresh"});
}

TEST_F(ElasticLoopTest, HalfAStateIsNobodysState) {
    // "b" has taken the tensors of "a", of step 3, and not yet the values.
    Script script;
    script.on_save = [](Rank& rank) {
        if (rank.name == "a" && rank.round == 0) {
            throw Died{};
        }
    };
    Script further = script;
    further.resume_at = {3, 3 * kBatch};
    ranks_["a"].replica.totals = {18, 153};
    ranks_["a"].replica.history = "ttt";
    auto places = rounds_.begin(2);
    start("a", places[0], further);
    start("b", places[1], script);
    EXPECT_TRUE(finished("a").died);
    rounds_.end({"b"});
    EXPECT_EQ(ranks_["b"].replica.history, "");
    EXPECT_EQ(agent_.page("b").step, 0U);
    // Nor is it with one that has come since, with no more than the job begins with.
    places = rounds_.begin(2);
    agent_.send("b", places[0]);
    start("fresh", places[1]);
    const auto fatal = agent_.await<worker_link::Fatal>("b");
    EXPECT_EQ(fatal.kind, worker_link::FatalKind::retry);
    ASSERT_TRUE(finished("b").error);
    EXPECT_NE(std::string(finished("b").error->what()).find("half of it"), std::string::npos);
    rounds_.end({"fresh"});
    rounds_.assign({"fresh"});
    expect_complete({"fresh"});
}

TEST_F(ElasticLoopTest, WhoHasTheWholeStateHasItThoughTheSourceDiesBeforeItIsCompared) {
    // Replicas are compared by what they save: the source is asked for it a second time.
    Script script;
    std::atomic<int> asked = 0;
    script.on_save = [&](Rank& rank) {
        if (rank.name == "a" && rank.round == 0 && ++asked == 2) {
            throw Died{};
        }
    };
    Script further = script;
    further.resume_at = {3, 3 * kBatch};
    ranks_["a"].replica.totals = {18, 153};
    ranks_["a"].replica.history = "ttt";
    const auto places = rounds_.begin(2);
    start("a", places[0], further);
    start("b", places[1], script);
    EXPECT_TRUE(finished("a").died);
    rounds_.end({"b"});
    rounds_.assign({"b"});
    expect_complete({"b"});
    EXPECT_EQ(finished("b").rounds.front(), (std::pair<std::uint64_t, std::uint64_t>(2, 3)));
}

TEST_F(ElasticLoopTest, ARoundThatEndsBeforeItHasFormedIsLeftAtOnce) {
    start_all({"a", "b"}, dies("b", &Script::before_reduction, 2));
    EXPECT_TRUE(finished("b").died);
    rounds_.end({"a"});
    const auto never = rounds_.begin(2);
    agent_.send("a", never[0]);  // Nobody is the other.
    rounds_.end({"a"});
    rounds_.assign({"a"});
    expect_complete({"a"});
}

TEST_F(ElasticLoopTest, ADrainParksEverybodyAtOneStep) {
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
    start_all({"a", "b", "c"}, script);
    EXPECT_EQ(finished("b").ending, Ending::left);
    EXPECT_EQ(agent_.await<Parked>("a"),
              (Parked{.round = 1, .step = left_at, .at_boundary = true}));
    EXPECT_EQ(agent_.await<Parked>("c"),
              (Parked{.round = 1, .step = left_at, .at_boundary = true}));
    EXPECT_EQ(finished("b").replica.history.size(), left_at);
    rounds_.assign({"a", "c"});
    expect_complete({"a", "c"});
}

TEST_F(ElasticLoopTest, ItGrowsWithoutRepeatingAStep) {
    Script script;
    std::atomic<int> repeated = 0;
    script.before_reduction = [&](Rank& rank, ElasticStep& step) {
        repeated += rank.replica.history.size() == step.number() ? 0 : 1;
    };
    script.after_commit = [this](Rank& rank, ElasticStep& step) {
        if (rank.round == 1 && step.number() == 4 && rank.name == "a") {
            agent_.pause("a", 1, false);
        }
    };
    start_all({"a", "b"}, script);
    const auto parked = agent_.await<Parked>("a");
    EXPECT_EQ(agent_.await<Parked>("b"), parked);
    const auto places = rounds_.begin(3);
    agent_.send("a", places[0]);
    agent_.send("b", places[1]);
    start("new", places[2], script);
    expect_complete({"a", "b", "new"});
    EXPECT_EQ(repeated, 0);
    EXPECT_EQ(finished("new").rounds.front().second, parked.step);
}

TEST_F(ElasticLoopTest, WhenOneDiesAtTheFinishTheOthersFinish) {
    Script script;
    script.on_round = [](Rank& rank, const ElasticRound& /*round*/) {
        rank.script.steps = rank.name == "b" && rank.round == 1 ? kSteps + 100 : kSteps;
    };
    script.before_reduction = [](Rank& rank, ElasticStep& step) {
        if (rank.name == "b" && step.number() == kSteps) {
            throw Died{};  // The others are in finish().
        }
    };
    start_all({"a", "b", "c"}, script);
    EXPECT_TRUE(finished("b").died);
    rounds_.end({"a", "c"});
    rounds_.assign({"a", "c"});
    expect_complete({"a", "c"});
}

TEST_F(ElasticLoopTest, ACheckpointedStateOfAnyRankIsEverybodys) {
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

TEST_F(ElasticLoopTest, AnErrorOfTheUsersOwnEndsTheLoopAndTellsTheOthers) {
    Script script;
    script.before_commit = [](Rank& rank, ElasticStep& step) {
        if (rank.name == "b" && step.number() == 2) {
            throw std::runtime_error("the data is bad");
        }
    };
    start_all({"a", "b"}, script);
    ASSERT_TRUE(finished("b").error);
    EXPECT_STREQ(finished("b").error->what(), "the data is bad");
    rounds_.end({"a"});
    rounds_.assign({"a"});
    expect_complete({"a"});
}

TEST_F(ElasticLoopTest, WhoLosesItsPeersParksThoughNobodySaysThatTheRoundIsOver) {
    // Both live; what is between them is broken. Their agent hears of it from them alone, and their
    // state is there for however long it takes until there is another round.
    Script script;
    script.before_reduction = [](Rank& rank, ElasticStep& step) {
        if (rank.name == "b" && step.number() == 3 && rank.round == 1) {
            throw Error(Errc::disconnected, "the connection to rank 0 broke");
        }
    };
    start_all({"a", "b"}, script);
    const auto remark = agent_.await<worker_link::Remark>("b");
    EXPECT_NE(remark.text.find("rank 1 has lost its peers in round 1"), std::string::npos);
    EXPECT_NE(remark.text.find("the connection to rank 0 broke"), std::string::npos);
    EXPECT_EQ(agent_.await<Parked>("b"), (Parked{.round = 1, .step = 3}));
    EXPECT_EQ(agent_.await<Parked>("a"), (Parked{.round = 1, .step = 3}));
    EXPECT_EQ(agent_.page("a").phase, worker_link::Phase::parked);
    EXPECT_EQ(agent_.page("a").ended_round, 0U);
    rounds_.assign({"a", "b"});
    expect_complete({"a", "b"});
    EXPECT_EQ(finished("b").rounds.back(), (std::pair<std::uint64_t, std::uint64_t>(2, 3)));
}

TEST_F(ElasticLoopTest, AStepThatIsNeitherCommittedNorFinishedIsAMistake) {
    FakeAgent agent;
    Context alone;
    const auto loop = elastic::Loop::make({}, alone, nullptr);
    try {
        loop->run({.on_step = [](ElasticStep& /*step*/) {}});
        FAIL();
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::invalid_argument);
        EXPECT_NE(std::string(error.what()).find("without commit() or finish()"),
                  std::string::npos);
    }
}

TEST_F(ElasticLoopTest, TakesAndCommitsOncePerStep) {
    const auto loop = elastic::Loop::make({}, Context(), nullptr);
    const auto refused = [](const std::function<void()>& call) {
        try {
            call();
            return false;
        } catch (const Error& error) {
            return error.code() == Errc::invalid_argument;
        }
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

TEST_F(ElasticLoopTest, ReplicasThatGoApartEndTheJobByName) {
    Script script;
    script.options.compare_every = 4;
    script.after_commit = [](Rank& rank, ElasticStep& step) {
        if (rank.name == "c" && step.number() == 2) {
            ++rank.replica.totals[0];
        }
    };
    start_all({"a", "b", "c"}, script);
    for (const char* const name : {"a", "b", "c"}) {
        ASSERT_TRUE(finished(name).error);
        EXPECT_EQ(finished(name).error->code(), Errc::invalid_argument);
        EXPECT_NE(std::string(finished(name).error->what()).find("\"totals\" of rank 2"),
                  std::string::npos)
            << finished(name).error->what();
    }
}

TEST_F(ElasticLoopTest, ThePageTellsWhereARankIs) {
    std::promise<void> seen;
    const std::shared_future<void> go_on = seen.get_future().share();
    Script script;
    script.before_reduction = [&](Rank& rank, ElasticStep& step) {
        if (rank.name == "b" && step.number() == 3) {
            const auto section = step.section("loading data");
            go_on.wait();
        }
    };
    start_all({"a", "b"}, script);
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

TEST_F(ElasticLoopTest, ASlowRankIsNamed) {
    Script script;
    script.steps = 300;
    script.before_reduction = [](Rank& rank, ElasticStep& /*step*/) {
        const auto until =
            std::chrono::steady_clock::now() + std::chrono::milliseconds(rank.name == "b" ? 9 : 3);
        std::this_thread::sleep_until(until);
    };
    const auto places = rounds_.begin(2);
    start("a", places[0], script);
    start("b", places[1], script);
    const auto remark = agent_.await<worker_link::Remark>("a");
    EXPECT_NE(remark.text.find("rank 1 is slow"), std::string::npos) << remark.text;
    join();
}

}  // namespace
}  // namespace regroup::testing
