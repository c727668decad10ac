// SPDX-License-Identifier: Apache-2.0
#include <regroup/distributed_sampler.h>
#include <regroup/error.h>
#include <regroup/evaluation.h>

#include <cmath>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "tests/conformance/process_group_ranks.h"
#include "tests/support/matchers.h"

namespace regroup {
namespace {

double loss_of(std::uint64_t sample) {
    return std::exp(std::sin(static_cast<double>(sample)) * 20.0);
}

std::vector<std::uint64_t> padded_shard(const ProcessGroup& group, std::uint64_t count) {
    return DistributedSampler({.dataset_count = count,
                               .rank = group.rank(),
                               .world_size = group.world_size(),
                               .shuffle = false})
        .indices();
}

TEST(Evaluator, FiguresEqualThoseOfOneProcessToTheBitForEveryWorldSizeAndPadding) {
    for (const std::uint64_t count : {1U, 2U, 3U, 101U, 1000U}) {
        double expected = 0.0;
        run_ranks(1, [&](ProcessGroup& alone) {
            Evaluator evaluator(alone, count, {"loss"});
            for (std::uint64_t sample = 0; sample < count; ++sample) {
                EXPECT_TRUE(evaluator.add({loss_of(sample)}));
            }
            expected = evaluator.finish().mean("loss");
        });
        for (std::uint32_t world_size = 2; world_size <= 5; ++world_size) {
            run_ranks(world_size, [&](ProcessGroup& group) {
                Evaluator evaluator(group, count, {"loss", "even"});
                for (const std::uint64_t sample : padded_shard(group, count)) {
                    evaluator.add({loss_of(sample), sample % 2 == 0 ? 1.0 : 0.0});
                }
                const EvaluationResult result = evaluator.finish();
                EXPECT_EQ(result.sample_count(), count);
                EXPECT_EQ(result.mean("loss"), expected) << count << " on " << world_size;
                const auto even = (count + 1) / 2;
                EXPECT_EQ(result.sum("even"), static_cast<double>(even));
            });
        }
    }
}

TEST(Evaluator, PaddingIsNotCounted) {
    run_ranks(3, [](ProcessGroup& group) {
        Evaluator evaluator(group, 4, {"one"});
        EXPECT_TRUE(evaluator.add({1.0}));
        EXPECT_EQ(evaluator.add({1.0}), group.rank() == 0);
        EXPECT_THAT(error_of([&] { evaluator.add({1.0}); })->what(), HasSubstr("more than the 2"));
        EXPECT_EQ(evaluator.finish().sum("one"), 4.0);
        // And again, from the start.
        EXPECT_TRUE(evaluator.add({2.0}));
        EXPECT_EQ(evaluator.add({2.0}), group.rank() == 0);
        EXPECT_EQ(evaluator.finish().sum("one"), 8.0);
    });
}

TEST(Evaluator, UnscoredSamplesAreAnErrorOnEveryRank) {
    run_ranks(2, [](ProcessGroup& group) {
        Evaluator evaluator(group, 10, {"one"});
        for (int i = 0; i < (group.rank() == 0 ? 5 : 3); ++i) {
            evaluator.add({1.0});
        }
        EXPECT_STREQ(error_of([&] { (void)evaluator.finish(); })->what(),
                     "evaluation: only 8 of the 10 samples were scored");
    });
}

TEST(Evaluator, WrongScoresAndFiguresAreRefused) {
    run_ranks(1, [](ProcessGroup& group) {
        Evaluator evaluator(group, 1, {"loss", "correct"});
        EXPECT_STREQ(error_of([&] { evaluator.add({1.0}); })->what(),
                     "evaluation: 1 scores for 2 figures");
        evaluator.add({1.0, 0.0});
        const EvaluationResult result = evaluator.finish();
        EXPECT_THAT(error_of([&] { (void)result.mean("accuracy"); })->what(),
                    HasSubstr("'accuracy'"));
        EXPECT_TRUE(error_of([&] { Evaluator(group, 0, {"loss"}); }));
        EXPECT_TRUE(error_of([&] { Evaluator(group, 1, {}); }));
    });
}

// Row i of rank r belongs to position r + i * world_size and holds {position, 100 + position}.
std::vector<std::int32_t> rows_of(const ProcessGroup& group, std::uint64_t count, bool padded) {
    std::vector<std::int32_t> rows;
    for (std::uint64_t position = group.rank(); position < count; position += group.world_size()) {
        rows.push_back(static_cast<std::int32_t>(position));
        rows.push_back(static_cast<std::int32_t>(100 + position));
    }
    if (padded) {
        rows.resize((count + group.world_size() - 1) / group.world_size() * 2, -1);
    }
    return rows;
}

TEST(GatherInOrder, EveryRankGetsTheRowsInOrderWithAndWithoutPadding) {
    for (std::uint32_t world_size = 1; world_size <= 4; ++world_size) {
        for (const std::uint64_t count : {0U, 1U, 2U, 7U, 8U}) {
            run_ranks(world_size, [&](ProcessGroup& group) {
                // Some ranks may pad and others not.
                const std::vector<std::int32_t> mine = rows_of(group, count, group.rank() != 1);
                std::vector<std::int32_t> all(count * 2);
                gather_in_order(group, std::span(mine), {.dataset_count = count, .width = 2},
                                std::span(all));
                for (std::size_t position = 0; position < count; ++position) {
                    EXPECT_EQ(all[position * 2], static_cast<std::int32_t>(position));
                    EXPECT_EQ(all[position * 2 + 1], static_cast<std::int32_t>(100 + position));
                }
            });
        }
    }
}

TEST(GatherInOrder, WrongCountsAreRefused) {
    run_ranks(1, [](ProcessGroup& group) {
        std::vector<float> mine(3);
        std::vector<float> all(4);
        std::vector<double> doubles(3);
        EXPECT_STREQ(error_of([&] {
                         gather_in_order(group, std::span(mine), {.dataset_count = 4},
                                         std::span(all));
                     })->what(),
                     "gather_in_order: rank 0 has 3 elements; its 4 rows of 1 (4 with padding) "
                     "need 4");
        EXPECT_THAT(error_of([&] {
                        gather_in_order(group, std::span(mine), {.dataset_count = 3},
                                        std::span(all));
                    })->what(),
                    HasSubstr("output has 4"));
        EXPECT_THAT(error_of([&] {
                        gather_in_order(group, std::span(mine), {.dataset_count = 3},
                                        std::span(doubles));
                    })->what(),
                    HasSubstr("of float64; it needs 3 of float32"));
    });
}

}  // namespace
}  // namespace regroup
