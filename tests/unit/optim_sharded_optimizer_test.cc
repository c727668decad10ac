// SPDX-License-Identifier: Apache-2.0
#include <regroup/clip_grad_norm.h>
#include <regroup/error.h>
#include <regroup/sharded_optimizer.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/conformance/process_group_ranks.h"
#include "tests/support/fake_process_group.h"
#include "tests/unit/optim_support.h"
#include "worker_sdk/src/optim/shard_plan.h"

namespace regroup {
namespace {

using optim::FlatLayout;
using optim::Range;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::random_values;
using testing::run_ranks;

using Options = std::variant<SgdOptions, AdamOptions>;

const std::array<Options, 3> kOptions{
    SgdOptions{.learning_rate = 0.125},
    SgdOptions{.learning_rate = 0.125, .momentum = 0.9, .weight_decay = 0.01},
    AdamOptions{.learning_rate = 0.01, .weight_decay = 0.1, .decoupled_weight_decay = true}};

/// Some tensors are smaller than a shard, some lie in several.
const std::vector<std::size_t> kCounts{10, 50'001, 0, 4096, 20'000, 3};

/// Parameters and gradients of one rank. Gradients are random, and the same on all ranks.
struct Model {
    explicit Model(const std::vector<std::size_t>& counts = kCounts) {
        for (std::size_t t = 0; t < counts.size(); ++t) {
            masters.push_back(random_values(counts[t], t));
            gradients.emplace_back(counts[t]);
            shadows.emplace_back(counts[t]);
        }
    }
    std::vector<OptimizerTensors> tensors() {
        std::vector<OptimizerTensors> list;
        for (std::size_t t = 0; t < masters.size(); ++t) {
            list.push_back({.master = std::span(masters[t]),
                            .gradient = std::span(gradients[t]),
                            .shadow = std::span(shadows[t])});
        }
        return list;
    }
    void make_gradients(std::uint64_t step) {
        for (std::size_t t = 0; t < gradients.size(); ++t) {
            // In place, where the optimizers look for them.
            std::ranges::copy(random_values(gradients[t].size(), 1000 + 100 * step + t),
                              gradients[t].begin());
        }
    }

    std::vector<std::vector<float>> masters;
    std::vector<std::vector<float>> gradients;
    std::vector<std::vector<bfloat16>> shadows;
};

template <class Optimizer, class... More>
Optimizer make(Model& model, const Options& options, const More&... more) {
    return std::visit([&](const auto& known) { return Optimizer(model.tensors(), known, more...); },
                      options);
}

template <class Optimizer>
void train(Model& model, Optimizer& optimizer, std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t step = first; step < last; ++step) {
        model.make_gradients(step);
        optimizer.set_learning_rate(0.01 / static_cast<double>(step + 1));
        optimizer.step();
    }
}

void expect_same(const Model& model, const Model& expected) {
    for (std::size_t t = 0; t < model.masters.size(); ++t) {
        ASSERT_TRUE(model.masters[t] == expected.masters[t]) << "tensor " << t;
        ASSERT_TRUE(model.shadows[t] == expected.shadows[t]) << "tensor " << t;
    }
}

/// A training of one process with the whole state.
std::unique_ptr<Model> trained_whole(const Options& options, std::uint64_t steps) {
    auto model = std::make_unique<Model>();
    auto optimizer = make<FusedOptimizer>(*model, options);
    train(*model, optimizer, 0, steps);
    return model;
}

std::size_t moment_bytes(const ShardedOptimizer& optimizer) {
    std::size_t bytes = 0;
    for (const TensorView& view : optimizer.state()) {
        bytes += view.dtype == DType::float32 ? view.bytes() : 0;
    }
    return bytes;
}

TEST(ShardPlan, ShardsCoverEverythingAndBeginAtChunks) {
    const FlatLayout layout(kCounts);
    for (std::size_t count = 1; count < 40; ++count) {
        const std::vector<Range> shards = layout.shards(count);
        ASSERT_EQ(shards.size(), count);
        std::size_t at = 0;
        for (const Range& shard : shards) {
            EXPECT_EQ(shard.first, at);
            EXPECT_LE(shard.first, shard.last);
            EXPECT_LE(shard.count(), layout.total() / count + 2 * optim::kShardChunk);
            at = shard.last;
            for (std::size_t t = 0; t < kCounts.size(); ++t) {
                const Range part = layout.part(t, shard);
                EXPECT_TRUE(part.count() == 0 || part.first % optim::kShardChunk == 0);
            }
        }
        EXPECT_EQ(at, layout.total());
    }
}

TEST(ShardPlan, RanksKeepWhatTheyHaveAndGetTheRest) {
    using Ranges = std::vector<Range>;
    const std::vector<Ranges> held{{{0, 50}}, {{50, 100}}, {}};
    const std::vector<Ranges> wanted{{{0, 30}}, {{30, 60}}, {{60, 100}}};
    const optim::TransferPlan plan = plan_transfers(held, wanted);
    EXPECT_FALSE(plan.lost);
    EXPECT_THAT(plan.transfers,
                ElementsAre(optim::Transfer{0, 0, {0, 30}}, optim::Transfer{0, 1, {30, 50}},
                            optim::Transfer{1, 1, {50, 60}}, optim::Transfer{1, 2, {60, 100}}));
    const std::vector<Ranges> without{{{0, 50}}, {}, {}};
    EXPECT_EQ(plan_transfers(without, wanted).lost, (Range{50, 60}));
}

TEST(ShardedOptimizer, StepsHaveTheBitsOfAWholeOptimizer) {
    for (const Options& options : kOptions) {
        const auto expected = trained_whole(options, 5);
        for (std::uint32_t world_size = 1; world_size <= 4; ++world_size) {
            for (const bool replicate : {false, true}) {
                run_ranks(world_size, [&](ProcessGroup& group) {
                    Model model;
                    auto optimizer =
                        make<ShardedOptimizer>(model, options, ShardOptions{replicate});
                    optimizer.shard(group);
                    train(model, optimizer, 0, 5);
                    expect_same(model, *expected);
                    EXPECT_EQ(optimizer.step_count(), 5);
                });
            }
        }
    }
}

TEST(ShardedOptimizer, EachRankHoldsItsPartOfTheMoments) {
    constexpr std::size_t kCount = 1'000'000;
    constexpr std::size_t kSlack = 2 * optim::kShardChunk;
    for (const std::uint32_t world_size : {1U, 2U, 4U}) {
        std::mutex mutex;
        std::size_t sum = 0;
        run_ranks(world_size, [&](ProcessGroup& group) {
            Model model({kCount});
            ShardedOptimizer optimizer(model.tensors(), AdamOptions{});
            optimizer.shard(group);
            const std::size_t held = moment_bytes(optimizer) / (2 * sizeof(float));
            EXPECT_LE(held, kCount / world_size + kSlack);
            EXPECT_GE(held + kSlack, kCount / world_size);
            const std::lock_guard lock(mutex);
            sum += held;
        });
        EXPECT_EQ(sum, kCount);  // A multiple of 16.
    }
}

TEST(ShardedOptimizer, ScaledGradientsAndOverflowsCountAsInAWholeOptimizer) {
    const auto steps = [](Model& model, auto& optimizer) {
        GradScaler scaler({.init_scale = 64.0});
        for (std::uint64_t step = 0; step < 4; ++step) {
            model.make_gradients(step);
            if (step == 1) {
                model.gradients[4][7] = std::numeric_limits<float>::infinity();
            }
            for (const auto& gradient : model.gradients) {
                scaler.check(std::span(gradient));
            }
            optimizer.step(scaler);
            scaler.update();
        }
        EXPECT_EQ(optimizer.step_count(), 3);
    };
    Model expected;
    auto whole = make<FusedOptimizer>(expected, kOptions[2]);
    steps(expected, whole);
    run_ranks(3, [&](ProcessGroup& group) {
        Model model;
        auto optimizer = make<ShardedOptimizer>(model, kOptions[2]);
        optimizer.shard(group);
        steps(model, optimizer);
        expect_same(model, expected);
    });
}

TEST(ShardedOptimizer, PreparedStepChangesNothingUntilItIsApplied) {
    for (const Options& options : kOptions) {
        const auto expected = trained_whole(options, 3);
        const auto before = trained_whole(options, 2);
        run_ranks(3, [&](ProcessGroup& group) {
            Model model;
            auto optimizer = make<ShardedOptimizer>(model, options);
            optimizer.shard(group);
            train(model, optimizer, 0, 2);
            // Steps that are given up.
            model.make_gradients(9);
            optimizer.prepare();
            model.make_gradients(8);
            optimizer.prepare();
            expect_same(model, *before);
            Checkpoint checkpoint;
            EXPECT_TRUE(error_of([&] { optimizer.save(checkpoint); }));
            model.make_gradients(2);
            optimizer.set_learning_rate(0.01 / 3);
            optimizer.prepare();
            expect_same(model, *before);
            optimizer.apply();
            expect_same(model, *expected);
            EXPECT_EQ(optimizer.step_count(), 3);
            EXPECT_TRUE(error_of([&] { optimizer.apply(); }));
        });
    }
}

// Over shared memory every sum is in rank order, wherever an element lies.
TEST(ShardedOptimizer, ReducedShardsOfGradientsHaveTheBitsOfAnAllReduce) {
    constexpr std::uint32_t kWorld = 3;
    const AdamOptions options{.learning_rate = 0.01};
    run_ranks(kWorld, [&](ProcessGroup& group) {
        Model plain;
        FusedOptimizer whole(plain.tensors(), options);
        Model model;
        ShardedOptimizer optimizer(model.tensors(), options);
        optimizer.shard(group);
        for (std::uint64_t step = 0; step < 4; ++step) {
            model.make_gradients(step * kWorld + group.rank());
            plain.gradients = model.gradients;
            for (auto& gradient : plain.gradients) {
                group.all_reduce(std::span(gradient), ReduceOp::avg).wait();
            }
            std::vector<TensorView> all(plain.gradients.begin(), plain.gradients.end());
            const double norm = clip_grad_norm(all, 0.5);
            whole.step();

            const auto untouched = model.gradients;
            const std::vector<TensorView> mine = optimizer.reduce_gradients();
            EXPECT_EQ(clip_grad_norm(mine, 0.5, {.shards_of = &group}), norm);
            optimizer.step();
            EXPECT_TRUE(model.gradients == untouched);
            const char* const transport = std::getenv("REGROUP_CPU_TRANSPORT");
            if (transport == nullptr || transport != std::string("tcp")) {
                expect_same(model, plain);
            }
        }
        // A step without a reduction uses the whole gradients again.
        model.make_gradients(50);
        plain.gradients = model.gradients;
        plain.masters = model.masters;
        whole.step();
        optimizer.step();
        expect_same(model, plain);
    });
}

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

TEST(ShardedOptimizer, CheckpointResumesOnAnyWorldSize) {
    for (const Options& options : kOptions) {
        const auto expected = trained_whole(options, 9);
        Checkpoint checkpoint;
        Model saved;
        const std::vector<std::pair<std::size_t, std::uint64_t>> phases{{4, 0}, {2, 3}, {3, 6}};
        for (const auto& [world_size, first] : phases) {
            const Members members = fresh_members(world_size, options);
            in_group(members, [&](ProcessGroup& group, Member& member) {
                if (first > 0) {
                    member.model.masters = saved.masters;
                    if (group.rank() == world_size - 1) {  // One rank with the file is enough.
                        member.optimizer.load(checkpoint);
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
                    checkpoint = mine;
                    saved.masters = member.model.masters;
                }
            });
        }
        EXPECT_TRUE(saved.masters == expected->masters);

        // A whole optimizer goes on with it, too.
        const auto longer = trained_whole(options, 11);
        auto whole = make<FusedOptimizer>(saved, options);
        whole.load(checkpoint);
        train(saved, whole, 9, 11);
        expect_same(saved, *longer);
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
                EXPECT_THAT(text, HasSubstr(loss.named));
                EXPECT_THAT(text, HasSubstr("checkpoint"));
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
        const auto error = error_of([&] { member.optimizer.shard(group); });
        ASSERT_TRUE(error);
        EXPECT_EQ(error->code(), Errc::system);
    });
}

TEST(ShardedOptimizer, EveryOptionButTheLearningRateMustBeTheSame) {
    const std::vector<Options> adam{
        AdamOptions{},
        AdamOptions{.beta1 = 0.8},
        AdamOptions{.beta2 = 0.99},
        AdamOptions{.epsilon = 1e-6},
        AdamOptions{.weight_decay = 0.1},
        AdamOptions{.weight_decay = 0.1, .decoupled_weight_decay = true}};
    const std::vector<Options> sgd{SgdOptions{.momentum = 0.9}, SgdOptions{.momentum = 0.8},
                                   SgdOptions{.momentum = 0.9, .dampening = 0.1},
                                   SgdOptions{.momentum = 0.9, .weight_decay = 0.1},
                                   SgdOptions{.momentum = 0.9, .nesterov = true}};
    run_ranks(2, [&](ProcessGroup& group) {
        Model model({10});
        for (const std::vector<Options>& options : {adam, sgd}) {
            for (std::size_t i = 0; i + 1 < options.size(); ++i) {
                auto optimizer = make<ShardedOptimizer>(model, options[i + group.rank()]);
                const auto error = error_of([&] { optimizer.shard(group); });
                ASSERT_TRUE(error) << "options " << i;
                EXPECT_THAT(error->what(), HasSubstr("rank 1 has other tensors or options"));
            }
        }
        AdamOptions mine{.learning_rate = 0.5};
        mine.learning_rate /= group.rank() + 1;
        auto optimizer = make<ShardedOptimizer>(model, mine);
        optimizer.shard(group);
        EXPECT_EQ(optimizer.learning_rate(), 0.5);
    });
}

TEST(ShardedOptimizer, MisuseIsRefused) {
    run_ranks(2, [](ProcessGroup& group) {
        Model model;
        auto optimizer = make<ShardedOptimizer>(model, kOptions[2], ShardOptions{true});
        EXPECT_THAT(error_of([&] { optimizer.step(); })->what(), HasSubstr("shard()"));
        optimizer.shard(group);
        EXPECT_THAT(error_of([&] { static_cast<void>(optimizer.reduce_gradients()); })->what(),
                    HasSubstr("replicate"));

        auto other = make<ShardedOptimizer>(model, kOptions[group.rank() + 1]);
        EXPECT_THAT(error_of([&] { other.shard(group); })->what(),
                    HasSubstr("rank 1 has other tensors or options"));

        std::vector<float> values(5);
        ShardedOptimizer missing({{.master = std::span(values)}}, AdamOptions{});
        missing.shard(group);
        EXPECT_THAT(error_of([&] { missing.step(); })->what(), HasSubstr("set_gradients"));
        const std::vector<ConstTensorView> given{std::span(values)};
        missing.set_gradients(given);
        missing.step();
        EXPECT_TRUE(error_of([&] {
            missing.set_gradients(std::vector<ConstTensorView>{std::span(values).first(2)});
        }));
        EXPECT_TRUE(error_of([&] { ShardedOptimizer({}, AdamOptions{}); }));
        EXPECT_TRUE(error_of(
            [&] { ShardedOptimizer({{.master = std::span(values)}}, AdamOptions{.beta1 = 2.0}); }));
    });
}

}  // namespace
}  // namespace regroup
