// SPDX-License-Identifier: Apache-2.0
// The results of collectives, against a serial reference.
#include <regroup/low_precision.h>

#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "tests/conformance/process_group_ranks.h"
#include "worker_sdk/src/cpu/cpu_process_group.h"
#include "worker_sdk/src/group/owned_group.h"

namespace regroup {
namespace {

// Around the chunk count, primes, and on both sides of the small-message limit of every dtype.
const std::vector<std::size_t> kResultCounts = {0, 1, 2, 3, 7, 1000, 65537};
constexpr std::size_t kCountMax = 65537;

constexpr std::size_t kPeriod = 5;

/// Small numbers that repeat along the buffer: sums and products of eight of them are exact in
/// floating point, so that any order of reduction gives the reference's value.
template <class T>
T value_of(std::uint32_t rank, std::size_t index) {
    const auto mixed = static_cast<std::uint32_t>((index * 7 + std::size_t{rank} * 13) % kPeriod);
    if constexpr (std::is_same_v<T, std::uint8_t>) {
        return static_cast<T>(mixed + 1);
    } else {
        return static_cast<T>(static_cast<int>(mixed) - 2);
    }
}

template <class T>
std::vector<T> input_of(std::uint32_t rank, std::size_t count) {
    std::vector<T> values(count);
    for (std::size_t i = 0; i < count; ++i) {
        values[i] = value_of<T>(rank, i);
    }
    return values;
}

template <class T>
T reference(ReduceOp op, std::uint32_t world_size, std::size_t index) {
    using Wide = std::conditional_t<std::is_integral_v<T>, std::int64_t, double>;
    auto result = static_cast<Wide>(value_of<T>(0, index));
    for (std::uint32_t rank = 1; rank < world_size; ++rank) {
        const auto value = static_cast<Wide>(value_of<T>(rank, index));
        switch (op) {
            case ReduceOp::sum:
            case ReduceOp::avg:
                result += value;
                break;
            case ReduceOp::product:
                result *= value;
                break;
            case ReduceOp::min:
                result = std::min(result, value);
                break;
            case ReduceOp::max:
                result = std::max(result, value);
                break;
            case ReduceOp::bit_and:
            case ReduceOp::bit_or:
            case ReduceOp::bit_xor:
                break;  // Tested with integers alone.
        }
    }
    if (op == ReduceOp::avg) {
        // Sums that fit T are divided as T: for float, in float.
        return std::is_integral_v<T> ? static_cast<T>(result / world_size)
                                     : static_cast<T>(result) / static_cast<T>(world_size);
    }
    return static_cast<T>(result);  // Integers wrap around.
}

template <class T>
void expect_all_reduce_matches(ProcessGroup& group, ReduceOp op, std::size_t count) {
    std::vector<T> values = input_of<T>(group.rank(), count);
    group.all_reduce(std::span(values), op).wait();
    std::array<T, kPeriod> expected{};
    for (std::size_t i = 0; i < kPeriod; ++i) {
        expected[i] = reference<T>(op, group.world_size(), i);
    }
    for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(values[i], expected[i % kPeriod])
            << to_string(DTypeOf<T>::value) << " " << to_string(op) << " of " << count
            << " elements, element " << i << ", rank " << group.rank();
    }
}

class ProcessGroupResults : public ::testing::TestWithParam<std::uint32_t> {};

INSTANTIATE_TEST_SUITE_P(WorldSizes, ProcessGroupResults, ::testing::Range(1U, 9U));

TEST_P(ProcessGroupResults, AllReduceEqualsTheSerialReference) {
    run_ranks(GetParam(), [](ProcessGroup& group) {
        for (const std::size_t count : kResultCounts) {
            for (const ReduceOp op :
                 {ReduceOp::sum, ReduceOp::product, ReduceOp::min, ReduceOp::max, ReduceOp::avg}) {
                expect_all_reduce_matches<float>(group, op, count);
                expect_all_reduce_matches<double>(group, op, count);
                expect_all_reduce_matches<std::int32_t>(group, op, count);
                expect_all_reduce_matches<std::int64_t>(group, op, count);
                expect_all_reduce_matches<std::uint8_t>(group, op, count);
            }
        }
    });
}

TEST_P(ProcessGroupResults, RoundingIsTheSameToTheBitOnAllRanks) {
    std::mutex mutex;
    std::map<std::size_t, std::vector<std::vector<float>>> results;  // by count
    run_ranks(GetParam(), [&](ProcessGroup& group) {
        for (const std::size_t count : {std::size_t{3}, std::size_t{1000}, kCountMax}) {
            std::vector<float> values(count);
            for (std::size_t i = 0; i < count; ++i) {
                // Sums of these depend on the order of addition.
                values[i] =
                    std::sin(static_cast<float>(i * 31 + std::size_t{group.rank()} * 17)) * 1e6F;
            }
            group.all_reduce(std::span(values), ReduceOp::avg).wait();
            const std::lock_guard lock(mutex);
            results[count].push_back(values);
        }
    });
    for (const auto& [count, of_ranks] : results) {
        for (const std::vector<float>& values : of_ranks) {
            EXPECT_EQ(std::memcmp(values.data(), of_ranks.front().data(), count * sizeof(float)), 0)
                << count << " elements";
        }
    }
}

TEST_P(ProcessGroupResults, AverageOfHalvesStaysInRangeThoughTheSumDoesNot) {
    run_ranks(GetParam(), [](ProcessGroup& group) {
        const std::uint32_t ranks = group.world_size();
        for (const std::size_t count : {std::size_t{3}, kCountMax}) {
            const std::vector<float16> large(count, float16(40000.0F));
            std::vector<float16> averages = large;
            group.all_reduce(std::span(averages), ReduceOp::avg).wait();
            std::vector<float16> part(count / ranks);
            group
                .reduce_scatter(std::span(large).first(part.size() * ranks), std::span(part),
                                ReduceOp::avg)
                .wait();
            std::vector<float16> rooted = large;
            group.reduce(std::span(rooted), ReduceOp::avg, 0).wait();
            if (group.rank() != 0) {
                rooted.clear();
            }
            for (const auto& results : {averages, part, rooted}) {
                for (const float16 value : results) {
                    ASSERT_NEAR(float(value), 40000.0F, 128.0F) << count << " elements";
                }
            }
        }
    });
}

TEST_P(ProcessGroupResults, EveryRootBroadcastsItsValues) {
    run_ranks(GetParam(), [](ProcessGroup& group) {
        for (std::uint32_t root = 0; root < group.world_size(); ++root) {
            for (const std::size_t count : kResultCounts) {
                std::vector<std::int32_t> values = input_of<std::int32_t>(group.rank(), count);
                group.broadcast(std::span(values), root).wait();
                ASSERT_EQ(values, input_of<std::int32_t>(root, count))
                    << count << " elements from root " << root << " on rank " << group.rank();
            }
        }
    });
}

TEST_P(ProcessGroupResults, AllGatherPutsRowsInTheOrderOfRanks) {
    run_ranks(GetParam(), [](ProcessGroup& group) {
        for (const std::size_t count : kResultCounts) {
            const std::vector<double> input = input_of<double>(group.rank(), count);
            std::vector<double> output(count * group.world_size());
            group.all_gather(std::span(input), std::span(output)).wait();
            for (std::uint32_t rank = 0; rank < group.world_size(); ++rank) {
                const auto row = output.begin() + static_cast<std::ptrdiff_t>(rank * count);
                ASSERT_EQ(std::vector<double>(row, row + static_cast<std::ptrdiff_t>(count)),
                          input_of<double>(rank, count));
            }
        }
    });
}

TEST_P(ProcessGroupResults, AllGatherWorksInPlace) {
    run_ranks(GetParam(), [](ProcessGroup& group) {
        std::vector<std::int64_t> output(group.world_size(), -1);
        output[group.rank()] = group.rank();
        const std::span<std::int64_t> all(output);
        group.all_gather(std::span<const std::int64_t>(all.subspan(group.rank(), 1)), all).wait();
        for (std::uint32_t rank = 0; rank < group.world_size(); ++rank) {
            EXPECT_EQ(output[rank], rank);
        }
    });
}

TEST_P(ProcessGroupResults, NoRankLeavesABarrierBeforeAllHaveEntered) {
    std::atomic<std::uint32_t> entered = 0;
    run_ranks(GetParam(), [&](ProcessGroup& group) {
        for (std::uint32_t round = 1; round <= 20; ++round) {
            ++entered;
            group.barrier().wait();
            EXPECT_GE(entered, round * group.world_size());
        }
    });
}

TEST_P(ProcessGroupResults, OperationsIssuedWithoutWaitingAreCarriedOutInOrder) {
    run_ranks(GetParam(), [](ProcessGroup& group) {
        constexpr std::size_t kBuffers = 20;
        std::vector<std::vector<double>> buffers;
        std::vector<Work> works;
        for (std::size_t i = 0; i < kBuffers; ++i) {
            buffers.push_back(input_of<double>(group.rank(), i % 3 == 0 ? 20000 : i));
        }
        for (std::size_t i = 0; i < kBuffers; ++i) {
            works.push_back(group.all_reduce(std::span(buffers[i]), ReduceOp::sum));
        }
        std::vector<double> tail = {static_cast<double>(group.rank())};
        works.push_back(group.broadcast(std::span(tail), group.world_size() - 1));
        works.back().wait();
        for (const Work& work : works) {
            EXPECT_TRUE(work.done());  // Its successor is.
        }
        EXPECT_EQ(tail[0], group.world_size() - 1);
        for (const std::vector<double>& buffer : buffers) {
            for (std::size_t k = 0; k < buffer.size(); ++k) {
                ASSERT_EQ(buffer[k], reference<double>(ReduceOp::sum, group.world_size(), k));
            }
        }
    });
}

TEST_P(ProcessGroupResults, RingSendsTwoTimesNMinusOneNthOfTheBuffer) {
    const std::uint32_t world_size = GetParam();
    run_ranks(world_size, [&](ProcessGroup& group) {
        const auto* const cpu_group =
            dynamic_cast<const cpu::CpuProcessGroup*>(&OwnedGroup::within(group));
        if (cpu_group == nullptr) {
            EXPECT_EQ(world_size, 1U);  // Alone, nothing is sent.
            return;
        }
        const std::size_t before = cpu_group->collective_bytes_sent();
        const std::size_t chunk_count = 5000;  // Of doubles: above the small-message limit.
        std::vector<double> values(chunk_count * world_size);
        group.all_reduce(std::span(values), ReduceOp::sum).wait();
        EXPECT_EQ(cpu_group->collective_bytes_sent() - before,
                  cpu_group->shares_memory()
                      ? 0
                      : std::size_t{2} * (world_size - 1) * chunk_count * sizeof(double));
    });
}

TEST(ProcessGroupArguments, ArgumentsAreCheckedBeforeAnythingIsIssued) {
    run_ranks(2, [](ProcessGroup& group) {
        const auto expect_refused = [](const std::function<void()>& call) {
            const auto error = testing::error_of(call);
            ASSERT_TRUE(error);
            EXPECT_EQ(error->code(), Errc::invalid_argument) << error->what();
        };
        std::vector<float> values(4);
        std::vector<float> five(5);
        expect_refused([&] { (void)group.broadcast(std::span(values), 2); });
        expect_refused([&] { (void)group.send(std::span(values), group.rank()); });
        expect_refused([&] { (void)group.recv(std::span(values), 7); });
        expect_refused([&] { (void)group.all_gather(std::span(values), std::span(five)); });
        expect_refused(
            [&] { (void)group.all_reduce({nullptr, 3, DType::float32}, ReduceOp::sum); });
        std::vector<std::byte> bytes(16);
        expect_refused(
            [&] { (void)group.all_reduce({bytes.data() + 1, 1, DType::float64}, ReduceOp::sum); });
        group.barrier().wait();  // The group still works.
    });
}

#if defined(__x86_64__)
// A waiting thread may carry the operation out, and threads inherit the floating-point mode.
TEST(Arithmetic, FloatingPointModeOfTheCallerHasNoEffect) {
    constexpr unsigned kFlushToZero = 0x8040;  // Results, and operands too.
    constexpr std::uint32_t kSubnormal = 0x1000;
    run_ranks(2, [&](ProcessGroup& group) {
        if (group.rank() == 0) {
            _mm_setcsr(_mm_getcsr() | kFlushToZero);
        }
        const unsigned before = _mm_getcsr();
        const auto part = group.new_group({0, 1}, "part");
        for (const std::size_t count : {std::size_t{10}, std::size_t{300000}}) {
            for (ProcessGroup* const each : {&group, part.get()}) {
                std::vector<std::uint32_t> bits(count, kSubnormal);
                each->all_reduce({bits.data(), count, DType::float32}, ReduceOp::sum).wait();
                EXPECT_EQ(bits, std::vector<std::uint32_t>(count, 2 * kSubnormal));
            }
        }
        EXPECT_EQ(_mm_getcsr() & kFlushToZero, before & kFlushToZero);
    });
}
#endif

// As in torch.minimum and torch.maximum: a NaN on one rank shows on all.
template <class T>
void expect_nan_to_survive(ReduceOp op, std::uint32_t world_size, std::size_t count) {
    run_ranks(world_size, [&](ProcessGroup& group) {
        std::vector<T> values(count, T(static_cast<float>(group.rank() + 1)));
        for (std::size_t i = group.rank(); i < count; i += std::size_t{2} * world_size) {
            values[i] = T(std::numeric_limits<float>::quiet_NaN());
        }
        group.all_reduce(std::span(values), op).wait();
        for (std::size_t i = 0; i < count; ++i) {
            const auto value = static_cast<double>(static_cast<float>(values[i]));
            const double expected = op == ReduceOp::min ? 1.0 : world_size;
            ASSERT_TRUE(i % (std::size_t{2} * world_size) < world_size ? std::isnan(value)
                                                                       : value == expected)
                << "element " << i << " of " << count << ": " << value;
        }
    });
}

TEST(Nan, NanSurvivesMinAndMax) {
    for (const ReduceOp op : {ReduceOp::min, ReduceOp::max}) {
        for (const std::size_t count : {std::size_t{13}, std::size_t{65537}}) {
            for (const std::uint32_t world_size : {2U, 3U}) {
                expect_nan_to_survive<float>(op, world_size, count);
                expect_nan_to_survive<double>(op, world_size, count);
                expect_nan_to_survive<float16>(op, world_size, count);
                expect_nan_to_survive<bfloat16>(op, world_size, count);
                expect_nan_to_survive<float8_e4m3fn>(op, world_size, count);
                expect_nan_to_survive<float8_e5m2>(op, world_size, count);
            }
        }
    }
}

}  // namespace
}  // namespace regroup
