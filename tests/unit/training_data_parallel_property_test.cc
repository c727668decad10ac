// SPDX-License-Identifier: Apache-2.0
// Overlapped, in any buckets and any order, equals the plain reduction bit for bit.
#include <regroup/distributed_data_parallel.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/fake_process_group.h"

namespace regroup {
namespace {

/// One random case, the same on all ranks.
struct Case {
    explicit Case(std::uint32_t seed_in) : seed(seed_in) {
        std::mt19937 random(seed);
        world_size = 1 + random() % 4;
        const std::size_t parameter_count = random() % 12;
        for (std::size_t i = 0; i < parameter_count; ++i) {
            counts.push_back(random() % 10 == 0 ? 0 : random() % 300);
            dtypes.push_back(random() % 4 == 0 ? DType::float64 : DType::float32);
            in_callers_memory.push_back(random() % 4 == 0);
        }
        options.bucket_bytes = random() % 3000;
        options.first_bucket_bytes = random() % 1000;
        options.reduction = random() % 2 == 0 ? ReduceOp::avg : ReduceOp::sum;
        options.rebuild_buckets = random() % 4 != 0;
        accumulated_steps = random() % 3;
    }

    std::uint32_t seed;
    std::uint32_t world_size;
    std::vector<std::size_t> counts;
    std::vector<DType> dtypes;
    std::vector<bool> in_callers_memory;
    DataParallelOptions options;
    std::size_t accumulated_steps;  ///< Before each reduction, without synchronisation.
};

// Of a magnitude that makes the order of additions matter.
double value_at(std::uint32_t rank, std::size_t pass, std::size_t parameter, std::size_t element) {
    std::uint64_t bits =
        (((std::uint64_t{rank} * 31U + pass) * 1009U + parameter) * 4099U + element) + 1;
    for (int round = 0; round < 2; ++round) {
        bits = (bits ^ (bits >> 31U)) * 0x9e3779b97f4a7c15ULL;
    }
    const auto significand = static_cast<double>(static_cast<std::int32_t>(bits >> 32U));
    return std::ldexp(significand, static_cast<int>((bits >> 16U) % 24) - 40);
}

/// One rank's gradients, as bytes of any dtype.
class Gradients {
   public:
    explicit Gradients(const Case& the_case) : case_(the_case) {
        for (std::size_t i = 0; i < case_.counts.size(); ++i) {
            const std::size_t bytes = case_.counts[i] * item_bytes(case_.dtypes[i]);
            values_.emplace_back(bytes / sizeof(double) + 1);
            callers_.emplace_back(bytes / sizeof(double) + 1);
        }
    }
    std::vector<Parameter> parameters() {
        std::vector<Parameter> list;
        for (std::size_t i = 0; i < case_.counts.size(); ++i) {
            list.push_back({{values_[i].data(), case_.counts[i], case_.dtypes[i]}});
            if (case_.in_callers_memory[i]) {
                list.back().gradient = {callers_[i].data(), case_.counts[i], case_.dtypes[i]};
            }
        }
        return list;
    }

   private:
    const Case& case_;
    std::vector<std::vector<double>> values_;
    std::vector<std::vector<double>> callers_;
};

template <class T>
void set_or_add(const TensorView& gradient, std::uint32_t rank, std::size_t pass,
                std::size_t parameter, bool add) {
    T* const items = static_cast<T*>(gradient.data);
    for (std::size_t k = 0; k < gradient.count; ++k) {
        const T value = static_cast<T>(value_at(rank, pass, parameter, k));
        items[k] = add ? items[k] + value : value;
    }
}

void compute(const TensorView& gradient, std::uint32_t rank, std::size_t pass,
             std::size_t parameter, bool add) {
    gradient.dtype == DType::float32 ? set_or_add<float>(gradient, rank, pass, parameter, add)
                                     : set_or_add<double>(gradient, rank, pass, parameter, add);
}

// Element by element, ranks in order.
template <class T>
void expect_plain_reduction(const Case& the_case, const TensorView& gradient,
                            std::size_t first_pass, std::size_t parameter) {
    for (std::size_t k = 0; k < gradient.count; ++k) {
        T total{};
        for (std::uint32_t rank = 0; rank < the_case.world_size; ++rank) {
            T mine = static_cast<T>(value_at(rank, first_pass, parameter, k));
            for (std::size_t pass = 1; pass <= the_case.accumulated_steps; ++pass) {
                mine += static_cast<T>(value_at(rank, first_pass + pass, parameter, k));
            }
            total += mine;
        }
        if (the_case.options.reduction == ReduceOp::avg) {
            total /= static_cast<T>(the_case.world_size);
        }
        T found{};
        std::memcpy(&found, static_cast<const T*>(gradient.data) + k, sizeof found);
        // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): the bits are what is compared.
        ASSERT_EQ(std::memcmp(&found, &total, sizeof total), 0)
            << "case " << the_case.seed << ", parameter " << parameter << ", element " << k;
    }
}

void run_case(const Case& the_case) {
    FakeWorld world(the_case.world_size);
    run_ranks(world, [&](FakeProcessGroup& group) {
        Gradients gradients(the_case);
        DistributedDataParallel ddp(group, gradients.parameters(), {}, the_case.options);
        std::mt19937 random(the_case.seed + group.rank());
        std::vector<std::size_t> order(the_case.counts.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        const auto backward = [&](std::size_t pass, bool add) {
            std::ranges::shuffle(order, random);
            for (const std::size_t index : order) {
                compute(ddp.gradient(index), group.rank(), pass, index, add);
                ddp.gradient_ready(index);
            }
        };
        for (std::size_t pass = 0; pass < 12; pass += 4) {
            for (std::size_t step = 0; step < the_case.accumulated_steps; ++step) {
                const auto guard = ddp.no_sync();
                backward(pass + step, step > 0);
            }
            backward(pass + the_case.accumulated_steps, the_case.accumulated_steps > 0);
            ddp.finish_step();
            for (std::size_t index = 0; index < order.size(); ++index) {
                const TensorView gradient = ddp.gradient(index);
                gradient.dtype == DType::float32
                    ? expect_plain_reduction<float>(the_case, gradient, pass, index)
                    : expect_plain_reduction<double>(the_case, gradient, pass, index);
            }
        }
    });
}

TEST(DataParallelProperty, OverlappedEqualsPlainBitForBit) {
    for (std::uint32_t seed = 0; seed < 150 && !::testing::Test::HasFailure(); ++seed) {
        run_case(Case(seed));
    }
}

}  // namespace
}  // namespace regroup
