// SPDX-License-Identifier: Apache-2.0
//
// Sharded optimizers of a job whose ranks come and go.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/conformance/process_group_ranks.h"
#include "tests/support/errors.h"
#include "tests/support/fake_process_group.h"
#include "tests/support/matchers.h"
#include "tests/unit/optim_sharded_model.h"

namespace regroup {
namespace {

using namespace sharded;
using testing::error_of;
using testing::run_ranks;

/// A rank of a job whose world changes: the optimizer stays, the groups come and go.
struct Member {
    explicit Member(const Options& options, bool replicate = false)
        : optimizer(make<ShardedOptimizer>(model, options, ShardOptions{replicate})) {}

    Model model;
    ShardedOptimizer optimizer;
};
using Members = std::vector<std::unique_ptr<Member>>;

void in_group(const Members& members,
              const std::function<void(ProcessGroup&, Member& member)>& body) {
    run_ranks(static_cast<std::uint32_t>(members.size()),
              [&](ProcessGroup& group) { body(group, *members[group.rank()]); });
}

Members fresh_members(std::size_t count, const Options& options, bool replicate = false) {
    Members members;
    for (std::size_t i = 0; i < count; ++i) {
        members.push_back(std::make_unique<Member>(options, replicate));
    }
    return members;
}

/// As an ElasticLoop does: a fresh process gets the registered state of a survivor.
void give_masters(const Model& from, Member& to) {
    to.model.masters = from.masters;
}

/// Members that have taken two steps together.
Members trained_members(std::size_t count, const Options& options, bool replicate = false) {
    Members members = fresh_members(count, options, replicate);
    in_group(members, [&](ProcessGroup& group, Member& member) {
        member.optimizer.shard(group);
        train(member.model, member.optimizer, 0, 2);
    });
    return members;
}

/// They go on with all of their state.
void expect_two_more_steps(const Members& members, const Options& options) {
    in_group(members, [&](ProcessGroup& group, Member& member) {
        member.optimizer.shard(group);
        EXPECT_EQ(member.optimizer.step_count(), 2);
        train(member.model, member.optimizer, 2, 4);
        expect_same(member.model, *trained_whole(options, 4));
    });
}

/// The state that outlives a world.
struct Saved {
    Checkpoint checkpoint{};
    Model model{};
};

/// A world of its own takes three steps, from `first` on, and saves.
void train_world(std::size_t world_size, std::uint64_t first, const Options& options,
                 Saved& saved) {
    const Members members = fresh_members(world_size, options);
    in_group(members, [&](ProcessGroup& group, Member& member) {
        if (first > 0) {
            give_masters(saved.model, member);
            if (group.rank() == world_size - 1) {  // One rank with the file is enough.
                member.optimizer.load(saved.checkpoint);
            }
        }
        member.optimizer.shard(group);
        EXPECT_EQ(member.optimizer.step_count(), first);
        train(member.model, member.optimizer, first, first + 3);
        Checkpoint mine;
        member.optimizer.save(mine, "optimizer", 1);
        EXPECT_EQ(mine.contains("optimizer.step_count"), group.rank() == 1);
        group.barrier().wait();
        if (group.rank() == 1) {
            saved.checkpoint = mine;
            saved.model.masters = member.model.masters;
        }
    });
}

TEST(ShardedOptimizer, CheckpointResumesOnAnyWorldSize) {
    for (const Options& options : kOptions) {
        const auto expected = trained_whole(options, 9);
        Saved saved;
        train_world(4, 0, options, saved);
        train_world(2, 3, options, saved);
        train_world(3, 6, options, saved);
        EXPECT_TRUE(saved.model.masters == expected->masters);

        // A whole optimizer goes on with it, too.
        const auto longer = trained_whole(options, 11);
        auto whole = make<FusedOptimizer>(saved.model, options);
        whole.load(saved.checkpoint);
        train(saved.model, whole, 9, 11);
        expect_same(saved.model, *longer);
    }
}

TEST(ShardedOptimizer, WorldMayGrowAndShrinkInOrder) {
    for (const bool replicate : {false, true}) {
        const Options& options = kOptions[2];
        Members members = trained_members(2, options, replicate);
        // Two fresh ranks, one of them first.
        Members more = fresh_members(2, options, replicate);
        for (const auto& member : more) {
            give_masters(members.front()->model, *member);
        }
        members.insert(members.begin(), std::move(more.front()));
        members.push_back(std::move(more.back()));
        in_group(members, [&](ProcessGroup& group, Member& member) {
            member.optimizer.shard(group);
            EXPECT_EQ(member.optimizer.step_count(), 2);
            train(member.model, member.optimizer, 2, 4);
            // Ranks 0 and 2 will leave, and hand over what they have.
            const std::vector<std::uint32_t> leaving{0, 2};
            member.optimizer.shard(group, leaving);
            EXPECT_EQ(moment_bytes(member.optimizer) == 0, group.rank() % 2 == 0);
            train(member.model, member.optimizer, 4, 5);  // Another step all the same.
        });
        members.erase(members.begin() + 2);
        members.erase(members.begin());
        in_group(members, [&](ProcessGroup& group, Member& member) {
            member.optimizer.shard(group);
            train(member.model, member.optimizer, 5, 7);
            expect_same(member.model, *trained_whole(options, 7));
        });
    }
}

TEST(ShardedOptimizer, NothingChangesIfAllRanksLeave) {
    const Members members = fresh_members(2, kOptions[2]);
    in_group(members, [&](ProcessGroup& group, Member& member) {
        member.optimizer.shard(group);
        train(member.model, member.optimizer, 0, 1);
        const std::size_t bytes = moment_bytes(member.optimizer);
        member.optimizer.shard(group, std::vector<std::uint32_t>{0, 1});
        EXPECT_EQ(moment_bytes(member.optimizer), bytes);
        Checkpoint checkpoint;
        member.optimizer.save(checkpoint);
        EXPECT_EQ(checkpoint.contains("optimizer.moment2"), group.rank() == 0);
    });
}

TEST(ShardedOptimizer, LostShardIsRefusedOnAllRanksByName) {
    struct Case {
        std::size_t world_size;
        std::vector<std::size_t> lost;  // From the last to the first.
        bool replicate;
        const char* named;
    };
    // Replicas of the shards 1 and 3 of four are on ranks 1 and 3.
    for (const Case& loss : {Case{3, {1}, false, "rank 1 of the 3 ranks"},
                             Case{4, {2, 1}, false, "ranks 1 and 2 of the 4 ranks"},
                             Case{4, {3, 1}, true, "ranks 1 and 3 of the 4 ranks"}}) {
        for (const bool replaced : {false, true}) {
            Members members = trained_members(loss.world_size, kOptions[2], loss.replicate);
            for (const std::size_t rank : loss.lost) {
                members.erase(members.begin() + static_cast<std::ptrdiff_t>(rank));
            }
            if (replaced) {
                // A fresh process with an older checkpoint does not help.
                auto fresh = fresh_members(1, kOptions[2], loss.replicate);
                Checkpoint old;
                Model elsewhere;
                auto whole = make<FusedOptimizer>(elsewhere, kOptions[2]);
                train(elsewhere, whole, 0, 1);
                whole.save(old);
                fresh.front()->optimizer.load(old);
                members.push_back(std::move(fresh.front()));
            }
            in_group(members, [&](ProcessGroup& group, Member& member) {
                const auto error = error_of([&] { member.optimizer.shard(group); });
                ASSERT_TRUE(error);
                EXPECT_EQ(error->code(), Errc::system);
                const std::string text = error->what();
                EXPECT_THAT(text, saying(loss.named, "checkpoint"));
                EXPECT_EQ(text.find("use the option replicate") == text.npos, loss.replicate);
                group.barrier().wait();  // The group stays usable.
            });
        }
    }
}

TEST(ShardedOptimizer, WithoutMomentsNothingIsLost) {
    Members members = trained_members(3, kOptions[0]);
    members.erase(members.begin());
    expect_two_more_steps(members, kOptions[0]);
}

TEST(ShardedOptimizer, ReplicasSurviveTheLossOfAnyRank) {
    for (std::size_t world_size = 2; world_size <= 5; ++world_size) {
        for (std::size_t lost = 0; lost < world_size; ++lost) {
            Members members = trained_members(world_size, kOptions[2], true);
            members.erase(members.begin() + static_cast<std::ptrdiff_t>(lost));
            if (lost % 2 == 0) {  // A fresh process takes its place.
                Members fresh = fresh_members(1, kOptions[2], true);
                give_masters(members.front()->model, *fresh.front());
                members.push_back(std::move(fresh.front()));
            }
            expect_two_more_steps(members, kOptions[2]);
        }
    }
}

// Four ranks on two nodes.
TEST(ShardedOptimizer, ReplicasSurviveTheLossOfANode) {
    Members members = trained_members(4, kOptions[1], true);
    members.erase(members.begin() + 2, members.end());
    expect_two_more_steps(members, kOptions[1]);
}

// Some ranks have applied the step when the round ends, and the others have prepared it.
TEST(ShardedOptimizer, PreparedStepIsAppliedIfAnotherRankHasAppliedIt) {
    Members members = fresh_members(3, kOptions[2]);
    in_group(members, [&](ProcessGroup& group, Member& member) {
        member.optimizer.shard(group);
        train(member.model, member.optimizer, 0, 2);
        member.model.make_gradients(2);
        member.optimizer.set_learning_rate(0.01 / 3);
        member.optimizer.prepare();
        if (group.rank() == 1) {
            member.optimizer.apply();
        }
    });
    in_group(members, [&](ProcessGroup& group, Member& member) {
        member.optimizer.shard(group);
        EXPECT_EQ(member.optimizer.step_count(), 3);
        expect_same(member.model, *trained_whole(kOptions[2], 3));
        train(member.model, member.optimizer, 3, 5);
        expect_same(member.model, *trained_whole(kOptions[2], 5));
    });
}

TEST(ShardedOptimizer, PreparedStepIsRolledBackIfNoRankHasAppliedIt) {
    Members members = fresh_members(3, kOptions[2], true);
    in_group(members, [&](ProcessGroup& group, Member& member) {
        member.optimizer.shard(group);
        train(member.model, member.optimizer, 0, 2);
        member.model.make_gradients(7);
        member.optimizer.prepare();
    });
    members.pop_back();
    expect_two_more_steps(members, kOptions[2]);
}

// The group fails while shards travel: the fake one has no messages.
TEST(ShardedOptimizer, StateSurvivesAFailureWhileItIsDividedAnew) {
    Members members = trained_members(2, kOptions[2]);
    Members fresh = fresh_members(1, kOptions[2]);
    give_masters(members.front()->model, *fresh.front());
    members.insert(members.begin(), std::move(fresh.front()));
    testing::FakeWorld world(3);
    testing::run_ranks(world, [&](testing::FakeProcessGroup& group) {
        EXPECT_TRUE(error_of([&] { members[group.rank()]->optimizer.shard(group); }));
    });
    expect_two_more_steps(members, kOptions[2]);
}

// The only rank that has kept a shard for the next group is lost before it could say so.
TEST(ShardedOptimizer, ShardsAreKeptUntilAllRanksHaveTheirNewOnes) {
    Members members = trained_members(2, kOptions[2], true);
    testing::FakeWorld world(2);
    world.fail_from(1);  // The barrier.
    testing::run_ranks(world, [&](testing::FakeProcessGroup& group) {
        Member& member = *members[group.rank()];
        const std::vector<std::uint32_t> leaving{1};
        EXPECT_TRUE(error_of([&] { member.optimizer.shard(group, leaving); }));
    });
    members.erase(members.begin());
    expect_two_more_steps(members, kOptions[2]);
}

// The group fails in a step: the masters are a mixture, so that no rank may go on with them.
TEST(ShardedOptimizer, StepThatFailsHalfwayLosesTheState) {
    Members members = fresh_members(2, kOptions[2]);
    testing::FakeWorld world(2);
    world.fail_from(2);  // Behind the two of shard().
    testing::run_ranks(world, [&](testing::FakeProcessGroup& group) {
        Member& member = *members[group.rank()];
        member.optimizer.shard(group);
        EXPECT_TRUE(error_of([&] { member.optimizer.step(); }));
    });
    in_group(members, [&](ProcessGroup& group, Member& member) {
        EXPECT_THAT(error_of([&] { member.optimizer.shard(group); }), is_error(Errc::system));
    });
}

}  // namespace
}  // namespace regroup
