// SPDX-License-Identifier: Apache-2.0
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "worker_sdk/src/cpu/ring_schedule.h"

namespace regroup::cpu {
namespace {

// The published tables for five ranks: one row per rank, {sends, receives} for each step.
const std::vector<std::vector<RingStep>> kScatterReduceOfFive = {
    {{0, 4}, {4, 3}, {3, 2}, {2, 1}}, {{1, 0}, {0, 4}, {4, 3}, {3, 2}},
    {{2, 1}, {1, 0}, {0, 4}, {4, 3}}, {{3, 2}, {2, 1}, {1, 0}, {0, 4}},
    {{4, 3}, {3, 2}, {2, 1}, {1, 0}},
};
const std::vector<std::vector<RingStep>> kAllGatherOfFive = {
    {{1, 0}, {0, 4}, {4, 3}, {3, 2}}, {{2, 1}, {1, 0}, {0, 4}, {4, 3}},
    {{3, 2}, {2, 1}, {1, 0}, {0, 4}}, {{4, 3}, {3, 2}, {2, 1}, {1, 0}},
    {{0, 4}, {4, 3}, {3, 2}, {2, 1}},
};

TEST(RingSchedule, ScheduleOfFiveRanksIsThePublishedTable) {
    for (std::uint32_t rank = 0; rank < 5; ++rank) {
        const RingSchedule schedule(rank, 5);
        ASSERT_EQ(schedule.steps(), 4U);
        for (std::uint32_t step = 0; step < 4; ++step) {
            EXPECT_EQ(schedule.scatter_reduce(step), kScatterReduceOfFive[rank][step]);
            EXPECT_EQ(schedule.all_gather(step), kAllGatherOfFive[rank][step]);
        }
    }
}

class RingScheduleOf : public ::testing::TestWithParam<std::uint32_t> {
   protected:
    const std::uint32_t world_size = GetParam();
};

INSTANTIATE_TEST_SUITE_P(WorldSizes, RingScheduleOf, ::testing::Values(1, 2, 3, 4, 7, 8, 16));

TEST_P(RingScheduleOf, SentChunkIsTheOneThatTheNextRankReceives) {
    for (std::uint32_t rank = 0; rank < world_size; ++rank) {
        const RingSchedule mine(rank, world_size);
        const RingSchedule next(mine.next(), world_size);
        EXPECT_EQ(next.previous(), rank);
        for (std::uint32_t step = 0; step < mine.steps(); ++step) {
            EXPECT_EQ(mine.scatter_reduce(step).send_chunk,
                      next.scatter_reduce(step).receive_chunk);
            EXPECT_EQ(mine.all_gather(step).send_chunk, next.all_gather(step).receive_chunk);
        }
    }
}

TEST_P(RingScheduleOf, EachStepSendsTheChunkOfTheStepBefore) {
    for (std::uint32_t rank = 0; rank < world_size; ++rank) {
        const RingSchedule schedule(rank, world_size);
        std::vector<RingStep> steps;
        for (std::uint32_t step = 0; step < schedule.steps(); ++step) {
            steps.push_back(schedule.scatter_reduce(step));
        }
        for (std::uint32_t step = 0; step < schedule.steps(); ++step) {
            steps.push_back(schedule.all_gather(step));
        }
        for (std::size_t i = 1; i < steps.size(); ++i) {
            EXPECT_EQ(steps[i].send_chunk, steps[i - 1].receive_chunk);
        }
    }
}

TEST_P(RingScheduleOf, EveryRankEndsWithEveryChunkReducedOverAllRanks) {
    using Contributors = std::set<std::uint32_t>;
    const std::uint32_t n = world_size;
    std::vector<std::vector<Contributors>> held(n, std::vector<Contributors>(n));  // [rank][chunk]
    for (std::uint32_t rank = 0; rank < n; ++rank) {
        for (Contributors& contributors : held[rank]) {
            contributors = {rank};
        }
    }
    const auto exchange = [&](auto step_of, bool reduce) {
        const auto before = held;
        for (std::uint32_t rank = 0; rank < n; ++rank) {
            const RingSchedule schedule(rank, n);
            const std::uint32_t chunk = step_of(schedule).receive_chunk;
            const Contributors& received = before[schedule.previous()][chunk];
            if (reduce) {
                for (const std::uint32_t contributor : received) {
                    // No rank is counted twice.
                    EXPECT_TRUE(held[rank][chunk].insert(contributor).second);
                }
            } else {
                held[rank][chunk] = received;
            }
        }
    };
    for (std::uint32_t step = 0; step + 1 < n; ++step) {
        exchange([&](const RingSchedule& s) { return s.scatter_reduce(step); }, true);
    }
    for (std::uint32_t rank = 0; rank < n; ++rank) {
        EXPECT_EQ(held[rank][(rank + 1) % n].size(), n);
    }
    for (std::uint32_t step = 0; step + 1 < n; ++step) {
        exchange([&](const RingSchedule& s) { return s.all_gather(step); }, false);
    }
    for (const auto& chunks : held) {
        for (const Contributors& contributors : chunks) {
            EXPECT_EQ(contributors.size(), n);
        }
    }
}

TEST_P(RingScheduleOf, AnyCountIsCutIntoEvenChunksWithoutGaps) {
    for (const std::size_t count : {0U, 1U, 2U, 3U, 7U, 100U, 65537U}) {
        std::size_t end = 0;
        for (std::uint32_t index = 0; index < world_size; ++index) {
            const Chunk chunk = chunk_of(count, world_size, index);
            EXPECT_EQ(chunk.first, end);
            EXPECT_GE(chunk.count, count / world_size);
            EXPECT_LE(chunk.count, count / world_size + 1);
            end += chunk.count;
        }
        EXPECT_EQ(end, count);
    }
}

TEST_P(RingScheduleOf, RingSendsTwoTimesNMinusOneNthOfTheBuffer) {
    const std::size_t count = std::size_t{1000} * world_size;
    for (std::uint32_t rank = 0; rank < world_size; ++rank) {
        const RingSchedule schedule(rank, world_size);
        std::size_t sent = 0;
        for (std::uint32_t step = 0; step < schedule.steps(); ++step) {
            sent += chunk_of(count, world_size, schedule.scatter_reduce(step).send_chunk).count;
            sent += chunk_of(count, world_size, schedule.all_gather(step).send_chunk).count;
        }
        EXPECT_EQ(sent, 2 * (count - count / world_size));
    }
}

}  // namespace
}  // namespace regroup::cpu
