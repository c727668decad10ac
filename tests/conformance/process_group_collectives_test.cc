// SPDX-License-Identifier: Apache-2.0
// Every collective with every dtype, operator and root, against what it must give element by
// element.
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>

#include "tests/conformance/process_group_ranks.h"

namespace regroup {
namespace {

const std::vector<std::size_t> kCounts = {0, 1, 2, 13, 1009, 40009};
const std::vector<ReduceOp> kOps = {ReduceOp::sum, ReduceOp::product, ReduceOp::min, ReduceOp::max,
                                    ReduceOp::avg};

/// A number from 1 to 3 that differs by rank and place: sums and products of eight of them are
/// exact in 16 bits and wider.
template <class T>
float number(std::uint32_t rank, std::size_t index) {
    const auto mixed = static_cast<float>((index * 7 + std::size_t{rank} * 11) % 3);
    // Of 8-bit floats only sums of four and products of two are exact: let most ranks be neutral.
    return sizeof(T) == 1 && is_floating_point(DTypeOf<T>::value) ? (rank < 2 ? mixed : 1.0F)
                                                                  : mixed + 1.0F;
}

template <class T>
std::vector<T> numbers(std::uint32_t rank, std::size_t count) {
    std::vector<T> values(count);
    for (std::size_t i = 0; i < count; ++i) {
        values[i] = static_cast<T>(number<T>(rank, i));
    }
    return values;
}

/// The reduction over all ranks, as a number that T holds exactly; integers modulo 256 where T is
/// that small.
template <class T>
T reduced(ReduceOp op, std::uint32_t world_size, std::size_t index) {
    double result = number<T>(0, index);
    for (std::uint32_t rank = 1; rank < world_size; ++rank) {
        const double next = number<T>(rank, index);
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
                break;  // Tested with integers alone.
        }
    }
    if constexpr (std::is_integral_v<T>) {
        const auto whole = static_cast<std::int64_t>(result);
        return static_cast<T>(op == ReduceOp::avg ? whole / world_size : whole);
    } else if constexpr (std::is_same_v<T, double>) {
        return op == ReduceOp::avg ? result / world_size : result;
    } else {
        const auto sum = static_cast<float>(result);
        return static_cast<T>(op == ReduceOp::avg ? sum / static_cast<float>(world_size) : sum);
    }
}

template <class T>
class Collectives : public ::testing::Test {};

using AllTypes =
    ::testing::Types<float, double, std::int32_t, std::int64_t, std::uint8_t, std::int8_t,
                     std::uint32_t, std::uint64_t, float16, bfloat16, float8_e4m3fn, float8_e5m2>;
TYPED_TEST_SUITE(Collectives, AllTypes);

/// Runs `body` in worlds of 1 to 5.
void in_worlds(const std::function<void(ProcessGroup&)>& body) {
    for (std::uint32_t world_size = 1; world_size <= 5; ++world_size) {
        run_ranks(world_size, body);
    }
}

template <class T>
std::size_t first_difference(const std::vector<T>& a, const std::vector<T>& b) {
    std::size_t i = 0;
    while (i < a.size() && i < b.size() && a[i] == b[i]) {
        ++i;
    }
    return i;
}

#define ASSERT_SAME(actual, expected) \
    ASSERT_EQ(first_difference(actual, expected), (expected).size())

template <class T>
std::vector<T> all_reduced(ReduceOp op, std::uint32_t world_size, std::size_t count) {
    std::vector<T> values(count);
    for (std::size_t i = 0; i < count; ++i) {
        values[i] = reduced<T>(op, world_size, i);
    }
    return values;
}

TYPED_TEST(Collectives, AllReduceAndReduceGiveTheReduction) {
    using T = TypeParam;
    in_worlds([](ProcessGroup& group) {
        for (const std::size_t count : kCounts) {
            for (const ReduceOp op : kOps) {
                SCOPED_TRACE(std::string(to_string(op)) + " of " + std::to_string(count) +
                             " in a world of " + std::to_string(group.world_size()));
                const std::vector<T> input = numbers<T>(group.rank(), count);
                const std::vector<T> expected = all_reduced<T>(op, group.world_size(), count);
                std::vector<T> values = input;
                group.all_reduce(std::span(values), op).wait();
                ASSERT_SAME(values, expected);
                const auto root = static_cast<std::uint32_t>(count % group.world_size());
                values = input;
                group.reduce(std::span(values), op, root).wait();
                ASSERT_SAME(values, group.rank() == root ? expected : input);
            }
        }
    });
}

TYPED_TEST(Collectives, ReduceScatterGivesEachRankItsRow) {
    using T = TypeParam;
    in_worlds([](ProcessGroup& group) {
        const std::size_t world_size = group.world_size();
        for (const std::size_t count : kCounts) {
            for (const ReduceOp op : kOps) {
                SCOPED_TRACE(std::string(to_string(op)) + " of " + std::to_string(count));
                const std::vector<T> input = numbers<T>(group.rank(), world_size * count);
                const std::vector<T> all =
                    all_reduced<T>(op, group.world_size(), world_size * count);
                const auto row = all.begin() + static_cast<std::ptrdiff_t>(group.rank() * count);
                const std::vector<T> expected(row, row + static_cast<std::ptrdiff_t>(count));
                std::vector<T> output(count);
                std::vector<T> before = input;
                group.reduce_scatter(std::span<const T>(input), std::span(output), op).wait();
                ASSERT_SAME(output, expected);
                ASSERT_SAME(input, before);
                // Into its own row of the input.
                const std::span<T> own = std::span(before).subspan(group.rank() * count, count);
                group.reduce_scatter(std::span(before), own, op).wait();
                ASSERT_SAME(std::vector<T>(own.begin(), own.end()), expected);
            }
        }
    });
}

TYPED_TEST(Collectives, RowsArriveWhereTheyBelong) {
    using T = TypeParam;
    in_worlds([](ProcessGroup& group) {
        const std::uint32_t world_size = group.world_size();
        for (const std::size_t count : kCounts) {
            SCOPED_TRACE(std::to_string(count) + " in a world of " + std::to_string(world_size));
            const std::uint32_t root = world_size - 1;
            std::vector<T> gathered_rows;  // Row i from rank i.
            std::vector<T> exchanged;      // Row `rank` of each rank's rows.
            for (std::uint32_t rank = 0; rank < world_size; ++rank) {
                const std::vector<T> row = numbers<T>(rank, count);
                gathered_rows.insert(gathered_rows.end(), row.begin(), row.end());
                const std::vector<T> rows = numbers<T>(rank, count * world_size);
                const auto mine = rows.begin() + static_cast<std::ptrdiff_t>(group.rank() * count);
                exchanged.insert(exchanged.end(), mine, mine + static_cast<std::ptrdiff_t>(count));
            }
            const std::vector<T> input = numbers<T>(group.rank(), count);
            std::vector<T> output(count * world_size);
            group.all_gather(std::span<const T>(input), std::span(output)).wait();
            ASSERT_SAME(output, gathered_rows);

            std::vector<T> at_root(group.rank() == root ? count * world_size : 0);
            group.gather(std::span<const T>(input), std::span(at_root), root).wait();
            ASSERT_SAME(at_root, group.rank() == root ? gathered_rows : at_root);

            const std::vector<T> rows =
                numbers<T>(root, group.rank() == root ? count * world_size : 0);
            std::vector<T> share(count);
            group.scatter(std::span<const T>(rows), std::span(share), root).wait();
            const std::vector<T> of_root = numbers<T>(root, count * world_size);
            const auto mine = of_root.begin() + static_cast<std::ptrdiff_t>(group.rank() * count);
            ASSERT_SAME(share, std::vector<T>(mine, mine + static_cast<std::ptrdiff_t>(count)));

            const std::vector<T> to_all = numbers<T>(group.rank(), count * world_size);
            group.all_to_all(std::span<const T>(to_all), std::span(output)).wait();
            ASSERT_SAME(output, exchanged);

            std::vector<T> told = numbers<T>(group.rank(), count);
            group.broadcast(std::span(told), root).wait();
            ASSERT_SAME(told, numbers<T>(root, count));
        }
    });
}

/// Larger than everything that is done in one piece.
constexpr std::size_t kLarge = 3'000'017;

TEST(LargeCollectives, LargeBuffersAreSentInPartsAndReassembled) {
    run_ranks(3, [](ProcessGroup& group) {
        const std::vector<float> input = numbers<float>(group.rank(), kLarge);
        const std::vector<float> sum = all_reduced<float>(ReduceOp::sum, 3, kLarge);
        std::vector<float> values = input;
        group.all_reduce(std::span(values), ReduceOp::sum).wait();
        ASSERT_SAME(values, sum);
        values = input;
        group.reduce(std::span(values), ReduceOp::sum, 1).wait();
        ASSERT_SAME(values, group.rank() == 1 ? sum : input);
        values = input;
        group.broadcast(std::span(values), 2).wait();
        ASSERT_SAME(values, numbers<float>(2, kLarge));
        std::vector<float> rows(3 * kLarge);
        group.all_gather(std::span(input), std::span(rows)).wait();
        std::vector<float> row(kLarge);
        group.reduce_scatter(std::span(rows), std::span(row), ReduceOp::avg).wait();
        ASSERT_SAME(row, numbers<float>(group.rank(), kLarge));  // All have the same rows.
        std::vector<float> exchanged(3 * kLarge);
        group.all_to_all(std::span(rows), std::span(exchanged)).wait();
        for (std::size_t i = 0; i < exchanged.size(); ++i) {
            ASSERT_EQ(exchanged[i], rows[group.rank() * kLarge + i % kLarge]);
        }
    });
}

TEST(Roots, EachRankIsRootInTurn) {
    run_ranks(5, [](ProcessGroup& group) {
        for (std::uint32_t root = 0; root < 5; ++root) {
            for (const std::size_t count : {std::size_t{3}, std::size_t{30011}}) {
                std::vector<double> values = numbers<double>(group.rank(), count);
                group.reduce(std::span(values), ReduceOp::avg, root).wait();
                ASSERT_SAME(values, group.rank() == root
                                        ? all_reduced<double>(ReduceOp::avg, 5, count)
                                        : numbers<double>(group.rank(), count));
                std::vector<double> rows(5 * count);
                const std::vector<double> mine = numbers<double>(group.rank(), count);
                group.gather(std::span(mine), std::span(rows), root).wait();
                std::vector<double> back(count);
                group.scatter(std::span(rows), std::span(back), root).wait();
                ASSERT_SAME(back, mine);
            }
        }
    });
}

TEST(PremultipliedSum, EachRankHasItsOwnFactor) {
    in_worlds([](ProcessGroup& group) {
        const double factor = 0.5 * (group.rank() + 1);
        const Reduction reduction = Reduction::premultiplied_sum(factor);
        for (const std::size_t count : {std::size_t{5}, std::size_t{40009}}) {
            const std::vector<float> input(count * group.world_size(), 4.0F);
            float sum = 0;
            for (std::uint32_t rank = 0; rank < group.world_size(); ++rank) {
                sum += 2.0F * static_cast<float>(rank + 1);
            }
            std::vector<float> values(count, 4.0F);
            group.all_reduce(std::span(values), reduction).wait();
            ASSERT_SAME(values, std::vector<float>(count, sum));
            values.assign(count, 0.0F);
            group.reduce_scatter(std::span(input), std::span(values), reduction).wait();
            ASSERT_SAME(values, std::vector<float>(count, sum));
            std::vector<bfloat16> low(count, bfloat16(4.0F));
            group.reduce(std::span(low), reduction, 0).wait();
            ASSERT_SAME(low, std::vector<bfloat16>(count, bfloat16(group.rank() == 0 ? sum : 4)));
        }
    });
}

/// Numbers whose sum depends on the order of the additions.
std::vector<float16> sines(std::uint32_t rank, std::size_t count) {
    std::vector<float16> values(count);
    for (std::size_t i = 0; i < count; ++i) {
        values[i] = float16(std::sin(static_cast<float>(i * 31 + std::size_t{rank} * 17)));
    }
    return values;
}

TEST(Rounding, ResultIsTheSameToTheBitOnAllRanksAndInEveryRepetition) {
    for (const std::uint32_t world_size : {2U, 3U, 5U}) {
        std::mutex mutex;
        std::map<std::size_t, std::vector<std::vector<float16>>> results;  // by count
        for (int repetition = 0; repetition < 3; ++repetition) {
            run_ranks(world_size, [&](ProcessGroup& group) {
                for (const std::size_t count : {std::size_t{9}, std::size_t{50021}}) {
                    std::vector<float16> values = sines(group.rank(), count);
                    group.all_reduce(std::span(values), ReduceOp::avg).wait();
                    const std::lock_guard lock(mutex);
                    results[count].push_back(values);
                }
            });
        }
        for (const auto& [count, of_ranks] : results) {
            for (const std::vector<float16>& values : of_ranks) {
                ASSERT_SAME(values, of_ranks.front());
            }
        }
    }
}

TEST(Arguments, InvalidArgumentsAreRefusedWithoutEffect) {
    run_ranks(2, [](ProcessGroup& group) {
        const auto expect_refused = [](const std::string& words,
                                       const std::function<void()>& call) {
            const auto error = testing::error_of(call);
            ASSERT_TRUE(error) << words;
            EXPECT_EQ(error->code(), Errc::invalid_argument);
            EXPECT_NE(std::string(error->what()).find(words), std::string::npos) << error->what();
        };
        std::vector<float> four(4);
        std::vector<std::int32_t> whole(4);
        const std::span<float> rows(four);
        expect_refused("rank 2 does not exist",
                       [&] { (void)group.reduce(rows, ReduceOp::sum, 2); });
        expect_refused("one row", [&] { (void)group.reduce_scatter(rows, rows, ReduceOp::sum); });
        expect_refused("overlap", [&] { (void)group.all_to_all(rows, rows); });
        expect_refused("both must be the same",
                       [&] { (void)group.all_to_all(rows.first(2), rows.subspan(2, 1)); });
        expect_refused("floating-point", [&] {
            (void)group.all_reduce(std::span(whole), Reduction::premultiplied_sum(0.5));
        });
        expect_refused("cuda:1", [&] {
            (void)group.all_reduce({four.data(), 4, DType::float32, {DeviceKind::cuda, 1}},
                                   ReduceOp::sum);
        });
        group.barrier().wait();
    });
}

}  // namespace
}  // namespace regroup
