// SPDX-License-Identifier: Apache-2.0
// Rows of different lengths, separate outputs, bitwise operators, and options of one operation.
#include <array>
#include <functional>
#include <numeric>

#include "tests/conformance/process_group_ranks.h"
#include "tests/support/errors.h"
#include "tests/support/matchers.h"

namespace regroup {
namespace {

using testing::World;

// Rows that fit into a message, and rows that are moved in parts. Some are empty.
const std::vector<std::size_t> kScales = {1, 7, 5000, 300000};

/// The count of row `row`, the same on all ranks.
std::vector<std::size_t> counts_of(std::uint32_t world_size, std::size_t scale) {
    std::vector<std::size_t> counts(world_size);
    for (std::uint32_t rank = 0; rank < world_size; ++rank) {
        counts[rank] = (rank * 5 + 1) % world_size * scale / world_size;
    }
    return counts;
}

std::size_t total(const std::vector<std::size_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

float value(std::uint32_t rank, std::uint32_t row, std::size_t index) {
    return static_cast<float>(rank * 100 + row * 10 + index % 7);
}

void append_row(std::vector<float>& rows, std::uint32_t rank, std::uint32_t row,
                std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        rows.push_back(value(rank, row, i));
    }
}

/// Runs `body` in worlds of several sizes, on each rank with one scale after the other.
void run_with_rows(const std::function<void(ProcessGroup&, std::size_t scale)>& body) {
    for (const std::uint32_t world_size : {1U, 2U, 3U, 5U}) {
        run_ranks(world_size, [&](ProcessGroup& group) {
            for (const std::size_t scale : kScales) {
                body(group, scale);
            }
        });
    }
}

TEST(UnevenRows, AllGatherPutsEachRowBehindTheOneBefore) {
    run_with_rows([](ProcessGroup& group, std::size_t scale) {
        const auto counts = counts_of(group.world_size(), scale);
        std::vector<float> mine;
        append_row(mine, group.rank(), 0, counts[group.rank()]);
        std::vector<float> all(total(counts));
        group.all_gather(mine, all, counts).wait();
        std::vector<float> expected;
        for (std::uint32_t rank = 0; rank < group.world_size(); ++rank) {
            append_row(expected, rank, 0, counts[rank]);
        }
        ASSERT_EQ(all, expected) << scale;
    });
}

TEST(UnevenRows, ReduceScatterLeavesEachRankItsRow) {
    run_with_rows([](ProcessGroup& group, std::size_t scale) {
        const auto counts = counts_of(group.world_size(), scale);
        std::vector<float> rows;
        for (std::uint32_t row = 0; row < group.world_size(); ++row) {
            append_row(rows, group.rank(), row, counts[row]);
        }
        const std::vector<float> before = rows;
        std::vector<float> mine(counts[group.rank()]);
        group.reduce_scatter(rows, mine, Reduction::premultiplied_sum(2.0), counts).wait();
        ASSERT_EQ(rows, before);
        for (std::size_t i = 0; i < mine.size(); ++i) {
            float sum = 0;
            for (std::uint32_t rank = 0; rank < group.world_size(); ++rank) {
                sum += 2 * value(rank, group.rank(), i);
            }
            ASSERT_EQ(mine[i], sum) << scale << " " << i;
        }
    });
}

TEST(UnevenRows, AllToAllMovesEveryRow) {
    run_with_rows([](ProcessGroup& group, std::size_t scale) {
        // Rank a sends to rank b this many elements.
        const auto count = [&](std::uint32_t from, std::uint32_t to) {
            return (from + 2 * to) % 3 * scale;
        };
        std::vector<std::size_t> sent;
        std::vector<std::size_t> received;
        std::vector<float> input;
        std::vector<float> expected;
        for (std::uint32_t peer = 0; peer < group.world_size(); ++peer) {
            sent.push_back(count(group.rank(), peer));
            received.push_back(count(peer, group.rank()));
            append_row(input, group.rank(), peer, sent.back());
            append_row(expected, peer, group.rank(), received.back());
        }
        std::vector<float> output(expected.size());
        group.all_to_all(input, output, sent, received).wait();
        ASSERT_EQ(output, expected) << scale;
    });
}

TEST(UnevenRows, RanksWithDifferentCountsDoNotAgree) {
    run_ranks(3, [&](ProcessGroup& group) {
        std::vector<std::size_t> counts = {4, 4, 4};
        if (group.rank() == 2) {
            counts = {5, 3, 4};
        }
        std::vector<float> mine(4);
        std::vector<float> all(12);
        mine.resize(counts[group.rank()]);
        EXPECT_THAT(error_of(group.all_gather(mine, all, counts)),
                    is_error(Errc::invalid_argument, "the ranks do not agree"));
    });
    run_ranks(3, [&](ProcessGroup& group) {
        const std::vector<std::size_t> sent = {2, 2, 2};
        const std::vector<std::size_t> received = {2, 2, group.rank() == 0 ? 3U : 2U};
        std::vector<float> input(total(sent));
        std::vector<float> output(total(received));
        auto error = error_of(group.all_to_all(input, output, sent, received));
        if (!error) {
            error = error_of(group.barrier());  // Others may be through before rank 0 objects.
        }
        EXPECT_THAT(error, is_error(Errc::invalid_argument, "rank 2 (", "2 x float32", "rank 0 (",
                                    "3 x float32"));
    });
}

TEST(UnevenRows, WrongCountsAreRefusedBeforeAnythingIsIssued) {
    run_ranks(2, [&](ProcessGroup& group) {
        std::vector<float> mine(2);
        std::vector<float> all(4);
        const auto refused = [&](const std::vector<std::size_t>& counts) {
            EXPECT_THAT(error_of([&] { (void)group.all_gather(mine, all, counts); }),
                        is_error(Errc::invalid_argument));
        };
        refused({4});
        refused({2, 3});
        refused({2, 1});
        refused({3, 1});
        refused({2, static_cast<std::size_t>(-1)});
        group.all_gather(mine, all, std::vector<std::size_t>{2, 2}).wait();
    });
}

TEST(SeparateOutput, AllReduceKeepsItsInput) {
    run_ranks(3, [&](ProcessGroup& group) {
        for (const std::size_t count : {std::size_t{3}, std::size_t{100000}}) {
            const std::vector<double> input(count, group.rank() + 1);
            std::vector<double> output(count, -1);
            group.all_reduce(input, output, Reduction::premultiplied_sum(0.5)).wait();
            EXPECT_EQ(input, std::vector<double>(count, group.rank() + 1));
            EXPECT_EQ(output, std::vector<double>(count, 3));
        }
    });
}

TEST(SeparateOutput, ReduceWritesOnTheRootAlone) {
    run_ranks(3, [&](ProcessGroup& group) {
        for (const std::size_t count : {std::size_t{3}, std::size_t{100000}}) {
            const std::vector<std::int64_t> input(count, group.rank() + 1);
            std::vector<std::int64_t> output(group.rank() == 1 ? count : 0, -1);
            group.reduce(input, output, ReduceOp::sum, 1).wait();
            EXPECT_EQ(input, std::vector<std::int64_t>(count, group.rank() + 1));
            EXPECT_EQ(output, std::vector<std::int64_t>(output.size(), 6));
        }
    });
}

TEST(SeparateOutput, BuffersThatOverlapOrDifferAreRefused) {
    run_ranks(1, [&](ProcessGroup& group) {
        std::vector<float> values(4);
        const std::span all(values);
        EXPECT_TRUE(
            error_of([&] { (void)group.all_reduce(all.first(3), all.last(3), ReduceOp::sum); }));
        EXPECT_TRUE(
            error_of([&] { (void)group.all_reduce(all.first(1), all.last(2), ReduceOp::sum); }));
        group.all_reduce(all.first(2), all.last(2), ReduceOp::sum).wait();
    });
}

TEST(Bitwise, OperatorsCombineTheBitsOfIntegers) {
    run_ranks(3, [&](ProcessGroup& group) {
        const std::array<std::uint8_t, 3> values = {0b1110, 0b0111, 0b1101};
        std::array<std::uint8_t, 1> mine = {values[group.rank()]};
        group.all_reduce(mine, ReduceOp::bit_and).wait();
        EXPECT_EQ(mine[0], 0b0100);
        mine = {values[group.rank()]};
        group.all_reduce(mine, ReduceOp::bit_or).wait();
        EXPECT_EQ(mine[0], 0b1111);
        std::vector<long long> wide(20000, values[group.rank()]);
        group.all_reduce(wide, ReduceOp::bit_xor).wait();
        EXPECT_EQ(wide, std::vector<long long>(20000, 0b0100));
        float real = 1;
        EXPECT_THAT(
            error_of([&] { (void)group.all_reduce(std::span(&real, 1), ReduceOp::bit_or); }),
            is_error(Errc::invalid_argument));
    });
}

TEST(Options, TimeoutOfOneOperationHoldsForItAlone) {
    run_ranks(2, [&](ProcessGroup& group) {
        group.barrier({.timeout = std::chrono::hours(1)}).wait();
        if (group.rank() == 0) {
            std::array<float, 4> values{};
            const auto patient = group.recv(values, 1, 1);
            EXPECT_THAT(
                error_of(group.recv(values, 1, 2, {.timeout = std::chrono::milliseconds(300)})),
                is_error(Errc::deadline_exceeded, "tag 2"));
            EXPECT_TRUE(error_of(patient));  // The group has ended.
        } else {
            EXPECT_TRUE(error_of(group.barrier()));
        }
    });
    run_ranks(1, [&](ProcessGroup& group) {
        EXPECT_TRUE(error_of([&] { (void)group.barrier({.timeout = std::chrono::seconds(0)}); }));
    });
}

TEST(Views, AreMadeFromContiguousRanges) {
    run_ranks(2, [&](ProcessGroup& group) {
        std::array<float, 2> array = {1, 2};
        float plain[2] = {1, 2};
        std::vector<unsigned long long> wide = {1, 2};
        std::vector<std::byte> bytes(2, std::byte{1});
        group.all_reduce(array, ReduceOp::sum).wait();
        group.all_reduce(plain, ReduceOp::sum).wait();
        group.all_reduce(std::span<float, 2>(array), ReduceOp::sum).wait();
        group.all_reduce(wide, ReduceOp::sum).wait();
        group.all_reduce(bytes, ReduceOp::max).wait();
        EXPECT_EQ(array, (std::array<float, 2>{4, 8}));
        EXPECT_EQ(plain[1], 4);
        EXPECT_EQ(wide, (std::vector<unsigned long long>{2, 4}));
    });
    static_assert(!std::is_constructible_v<TensorView, const std::vector<float>&>);
    static_assert(std::is_constructible_v<ConstTensorView, const std::vector<float>&>);
    static_assert(!std::is_constructible_v<ConstTensorView, std::vector<float>>,
                  "a view of a temporary would dangle");
}

}  // namespace
}  // namespace regroup
