// SPDX-License-Identifier: Apache-2.0
// Every collective with every dtype and operator of the "nccl" back end, over the stand-in: the
// back end makes the right call with the right arguments, in place or not, for every root.
#include <algorithm>
#include <numeric>

#include <gmock/gmock.h>

#include "tests/conformance/nccl_ranks.h"

namespace regroup {
namespace {

using testing::view;

template <class T>
class NcclResults : public ::testing::Test {};

using Types =
    ::testing::Types<float, double, std::int32_t, std::int64_t, std::uint8_t, std::int8_t,
                     std::uint32_t, std::uint64_t, float16, bfloat16, float8_e4m3fn, float8_e5m2>;
TYPED_TEST_SUITE(NcclResults, Types);

constexpr std::uint32_t kRanks = 4;

/// Rank r's value i: small whole numbers, exact in every type, as are their sums and products.
double value_of(std::uint32_t rank, std::size_t i) {
    return 1.0 + static_cast<double>((rank + i) % 2);
}

template <class T>
T typed(double value) {
    if constexpr (std::is_arithmetic_v<T>) {
        return static_cast<T>(value);
    } else {
        return T(static_cast<float>(value));
    }
}

template <class T>
std::vector<T> values_of(std::uint32_t rank, std::size_t first, std::size_t count) {
    std::vector<T> values;
    for (std::size_t i = first; i < first + count; ++i) {
        values.push_back(typed<T>(value_of(rank, i)));
    }
    return values;
}

double reduced(ReduceOp op, std::size_t i) {
    double result = value_of(0, i);
    for (std::uint32_t rank = 1; rank < kRanks; ++rank) {
        const double next = value_of(rank, i);
        switch (op) {
            case ReduceOp::sum:
            case ReduceOp::avg:
                result += next;
                break;
            case ReduceOp::product:
                result *= next;
                break;
            case ReduceOp::min:
                result = std::min(result, next);
                break;
            case ReduceOp::max:
                result = std::max(result, next);
                break;
            case ReduceOp::bit_and:
            case ReduceOp::bit_or:
            case ReduceOp::bit_xor:
                break;  // NCCL has none.
        }
    }
    return op == ReduceOp::avg ? result / kRanks : result;
}

/// The result of `op` on values [first, first + count) of all ranks; integers drop the fraction.
template <class T>
std::vector<T> expected(ReduceOp op, std::size_t first, std::size_t count) {
    std::vector<T> values;
    for (std::size_t i = first; i < first + count; ++i) {
        values.push_back(typed<T>(reduced(op, i)));
    }
    return values;
}

constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::product, ReduceOp::min, ReduceOp::max,
                             ReduceOp::avg};
constexpr std::size_t kCount = 7;

TYPED_TEST(NcclResults, ReductionsAreCorrectForEveryOperator) {
    using T = TypeParam;
    testing::run_ranks_on_gpus(kRanks, [](ProcessGroup& group) {
        for (const ReduceOp op : kOps) {
            SCOPED_TRACE(to_string(op));
            std::vector<T> all = values_of<T>(group.rank(), 0, kCount);
            group.all_reduce(view(all, group), op).wait();
            EXPECT_EQ(all, expected<T>(op, 0, kCount));

            std::vector<T> one = values_of<T>(group.rank(), 0, kCount);
            group.reduce(view(one, group), op, 2).wait();
            EXPECT_EQ(one, group.rank() == 2 ? expected<T>(op, 0, kCount)
                                             : values_of<T>(group.rank(), 0, kCount));

            std::vector<T> rows = values_of<T>(group.rank(), 0, kRanks * kCount);
            std::vector<T> row(kCount);
            group.reduce_scatter(view(rows, group), view(row, group), op).wait();
            EXPECT_EQ(row, expected<T>(op, group.rank() * kCount, kCount));
        }
    });
}

TYPED_TEST(NcclResults, ExchangesAreCorrect) {
    using T = TypeParam;
    testing::run_ranks_on_gpus(kRanks, [](ProcessGroup& group) {
        const std::uint32_t rank = group.rank();
        std::vector<T> mine = values_of<T>(rank, 0, kCount);
        std::vector<T> of_all;
        for (std::uint32_t other = 0; other < kRanks; ++other) {
            const std::vector<T> theirs = values_of<T>(other, 0, kCount);
            of_all.insert(of_all.end(), theirs.begin(), theirs.end());
        }
        std::vector<T> gathered(kRanks * kCount);
        group.all_gather(view(mine, group), view(gathered, group)).wait();
        EXPECT_EQ(gathered, of_all);

        std::vector<T> at_root(rank == 3 ? kRanks * kCount : 0);
        group.gather(view(mine, group), view(at_root, group), 3).wait();
        EXPECT_EQ(at_root, rank == 3 ? of_all : std::vector<T>());

        std::vector<T> row(kCount);
        std::vector<T> rows = rank == 1 ? of_all : std::vector<T>();
        group.scatter(view(rows, group), view(row, group), 1).wait();
        EXPECT_EQ(row, mine);

        std::vector<T> same = values_of<T>(rank, 0, kCount);
        group.broadcast(view(same, group), 2).wait();
        EXPECT_EQ(same, values_of<T>(2, 0, kCount));

        std::vector<T> sent = values_of<T>(rank, 0, kRanks * kCount);
        std::vector<T> received(kRanks * kCount);
        group.all_to_all(view(sent, group), view(received, group)).wait();
        for (std::uint32_t other = 0; other < kRanks; ++other) {
            const auto first = received.begin() + static_cast<std::ptrdiff_t>(other * kCount);
            EXPECT_EQ(std::vector<T>(first, first + kCount),
                      values_of<T>(other, rank * kCount, kCount));
        }
        group.barrier().wait();
    });
}

// Libraries before 2.28 have no such calls: sends and receives do the same.
TYPED_TEST(NcclResults, ExchangesAreCorrectWithAnOlderLibrary) {
    using T = TypeParam;
    testing::NcclWorld world(kRanks);
    world.stand_in.api().gather = nullptr;
    world.stand_in.api().scatter = nullptr;
    world.stand_in.api().all_to_all = nullptr;
    run_ranks(world, [](ProcessGroup& group) {
        const std::uint32_t rank = group.rank();
        std::vector<T> mine = values_of<T>(rank, 0, kCount);
        std::vector<T> gathered(rank == 0 ? kRanks * kCount : 0);
        group.gather(view(mine, group), view(gathered, group), 0).wait();
        std::vector<T> back(kCount);
        group.scatter(view(gathered, group), view(back, group), 0).wait();
        EXPECT_EQ(back, mine);
        std::vector<T> sent = values_of<T>(rank, 0, kRanks * kCount);
        std::vector<T> received(kRanks * kCount);
        group.all_to_all(view(sent, group), view(received, group)).wait();
        std::vector<T> returned(kRanks * kCount);
        group.all_to_all(view(received, group), view(returned, group)).wait();
        EXPECT_EQ(returned, sent);
    });
    EXPECT_TRUE(world.stand_in.events("gather").empty());
    EXPECT_FALSE(world.stand_in.events("send").empty());
}

TYPED_TEST(NcclResults, PremultipliedSumsUseTheFactorOfEachRank) {
    using T = TypeParam;
    if (!is_floating_point(DTypeOf<T>::value)) {
        testing::run_ranks_on_gpus(1, [](ProcessGroup& group) {
            std::vector<T> values(3);
            const auto error = testing::error_of([&] {
                (void)group.all_reduce(view(values, group), Reduction::premultiplied_sum(0.5));
            });
            ASSERT_TRUE(error);
            EXPECT_EQ(error->code(), Errc::invalid_argument);
            EXPECT_THAT(error->what(), ::testing::HasSubstr("floating-point"));
        });
        return;
    }
    testing::NcclWorld world(kRanks);
    run_ranks(world, [](ProcessGroup& group) {
        std::vector<T> values(kCount, typed<T>(2));
        // 1, 0.5, 0.5, 0.5: a factor of one is a premultiplied sum too.
        const double factor = group.rank() == 0 ? 1.0 : 0.5;
        group.all_reduce(view(values, group), Reduction::premultiplied_sum(factor)).wait();
        EXPECT_EQ(values, std::vector<T>(kCount, typed<T>(5)));
    });
    EXPECT_EQ(world.stand_in.events("red_op_create").size(), kRanks);
    EXPECT_EQ(world.stand_in.events("red_op_destroy").size(), kRanks);
}

TEST(NcclRows, RowsOfDifferentLengthsArriveInPlace) {
    testing::NcclWorld world(3);
    const std::vector<std::size_t> counts = {2, 0, 3};
    run_ranks(world, [&](ProcessGroup& group) {
        const auto rank = static_cast<float>(group.rank());
        std::vector<float> mine(counts[group.rank()], rank);
        std::vector<float> all(5, -1);
        group.all_gather(view(mine, group), view(all, group), counts).wait();
        EXPECT_EQ(all, (std::vector<float>{0, 0, 2, 2, 2}));

        std::vector<float> rows = {1, 2, 3, 4, 5};
        group.reduce_scatter(view(rows, group), view(mine, group), ReduceOp::sum, counts).wait();
        const std::vector<std::vector<float>> sums = {{3, 6}, {}, {9, 12, 15}};
        EXPECT_EQ(mine, sums[group.rank()]);

        // Rank a sends a + b elements to rank b.
        std::vector<std::size_t> lengths;
        for (std::uint32_t peer = 0; peer < 3; ++peer) {
            lengths.push_back(group.rank() + peer);
        }
        std::vector<float> sent(std::accumulate(lengths.begin(), lengths.end(), std::size_t{0}),
                                rank);
        std::vector<float> received(sent.size(), -1);
        group.all_to_all(view(sent, group), view(received, group), lengths, lengths).wait();
        std::vector<float> expected_rows;
        for (std::uint32_t peer = 0; peer < 3; ++peer) {
            expected_rows.insert(expected_rows.end(), lengths[peer], static_cast<float>(peer));
        }
        EXPECT_EQ(received, expected_rows);
    });
}

}  // namespace
}  // namespace regroup
