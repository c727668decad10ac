// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/matchers.h"
#include "worker_sdk/src/ddp/bucket_plan.h"

namespace regroup::ddp {
namespace {

TensorView shaped(std::size_t count, DType dtype = DType::float32) {
    return {nullptr, count, dtype};
}

std::vector<Bucket> plan(const std::vector<TensorView>& gradients, std::size_t bytes_max) {
    return plan_buckets(gradients, backward_order(gradients.size()), {bytes_max, bytes_max});
}

TEST(PlanBuckets, BucketsAreFilledFromTheLastParameterToTheFirst) {
    const std::vector<TensorView> gradients{shaped(16), shaped(32), shaped(48), shaped(64)};
    EXPECT_THAT(plan(gradients, 448), ElementsAre(Bucket{{3, 2}, DType::float32, 448},
                                                  Bucket{{1, 0}, DType::float32, 192}));
    EXPECT_THAT(plan(gradients, 447), ElementsAre(Bucket{{3}, DType::float32, 256},
                                                  Bucket{{2, 1, 0}, DType::float32, 384}));
    EXPECT_THAT(plan(gradients, 1 << 20), ElementsAre(Bucket{{3, 2, 1, 0}, DType::float32, 640}));
    EXPECT_THAT(plan({}, 100), IsEmpty());
}

TEST(PlanBuckets, EachGradientIsPaddedToSixtyFourBytes) {
    const std::vector<TensorView> gradients{shaped(1), shaped(17), shaped(0), shaped(3)};
    EXPECT_THAT(plan(gradients, 1000), ElementsAre(Bucket{{3, 2, 1, 0}, DType::float32, 256}));
}

TEST(PlanBuckets, OversizedGradientHasItsOwnBucket) {
    const std::vector<TensorView> gradients{shaped(1), shaped(1000), shaped(1)};
    for (const std::size_t bytes_max : {0U, 100U}) {
        EXPECT_THAT(plan(gradients, bytes_max),
                    ElementsAre(Bucket{{2}, DType::float32, 64}, Bucket{{1}, DType::float32, 4032},
                                Bucket{{0}, DType::float32, 64}));
    }
}

TEST(PlanBuckets, FirstBucketIsSmallerAndNeverLargerThanTheRest) {
    const std::vector<TensorView> gradients(6, shaped(16));
    const std::vector<std::size_t> order = backward_order(6);
    EXPECT_THAT(plan_buckets(gradients, order, {64, 192}),
                ElementsAre(Bucket{{5}, DType::float32, 64}, Bucket{{4, 3, 2}, DType::float32, 192},
                            Bucket{{1, 0}, DType::float32, 128}));
    EXPECT_THAT(plan_buckets(gradients, order, {1000, 192}),
                ElementsAre(Bucket{{5, 4, 3}, DType::float32, 192},
                            Bucket{{2, 1, 0}, DType::float32, 192}));
}

// Two dtypes by turns fill two buckets side by side, which come in the order in which they fill.
TEST(PlanBuckets, BucketHasOneDtype) {
    const std::vector<TensorView> gradients{shaped(2), shaped(2, DType::float64), shaped(2),
                                            shaped(2, DType::float64)};
    EXPECT_THAT(plan(gradients, 1000), ElementsAre(Bucket{{3, 1}, DType::float64, 128},
                                                   Bucket{{2, 0}, DType::float32, 128}));
}

TEST(PlanBuckets, PlanCoversEveryParameterOnceWithinTheLimitInTheOrderOfCompletion) {
    std::mt19937 random(1);
    for (int round = 0; round < 500; ++round) {
        std::vector<TensorView> gradients(random() % 12);
        for (TensorView& gradient : gradients) {
            gradient = shaped(random() % 50, random() % 4 == 0 ? DType::float64 : DType::float32);
        }
        std::vector<std::size_t> order = backward_order(gradients.size());
        std::ranges::shuffle(order, random);
        const std::size_t bytes_max = random() % 600;
        std::vector<std::size_t> covered;
        std::size_t complete_before = 0;
        for (const Bucket& bucket : plan_buckets(gradients, order, {bytes_max, bytes_max})) {
            std::size_t bytes = 0;
            for (const std::size_t index : bucket.parameters) {
                bytes += padded_bytes(gradients[index]);
                ASSERT_EQ(gradients[index].dtype, bucket.dtype);
                covered.push_back(index);
            }
            ASSERT_EQ(bytes, bucket.bytes);
            ASSERT_TRUE(bytes <= bytes_max || bucket.parameters.size() == 1);
            const auto complete_at = static_cast<std::size_t>(
                std::ranges::find(order, bucket.parameters.back()) - order.begin());
            ASSERT_GE(complete_at, complete_before);
            complete_before = complete_at;
        }
        std::ranges::sort(covered);
        std::vector<std::size_t> all(gradients.size());
        std::iota(all.begin(), all.end(), std::size_t{0});
        ASSERT_EQ(covered, all);
    }
}

}  // namespace
}  // namespace regroup::ddp
