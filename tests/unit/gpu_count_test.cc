// SPDX-License-Identifier: Apache-2.0
// Counting GPUs without initialising CUDA.
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "worker_sdk/src/cuda/device_count.h"

namespace regroup::cuda {
namespace {

const std::vector<std::string> kGpus{"GPU-aa11", "GPU-aa22", "GPU-bb33"};

TEST(GpuCount, EveryGpuIsVisibleWithoutAList) {
    EXPECT_EQ(count_visible(kGpus, std::nullopt), 3);
}

TEST(GpuCount, ListNamesGpusByNumberOrIdentity) {
    EXPECT_EQ(count_visible(kGpus, "2,0"), 2);
    EXPECT_EQ(count_visible(kGpus, " 1 , 2"), 2);
    EXPECT_EQ(count_visible(kGpus, "GPU-bb,0"), 2);
    EXPECT_EQ(count_visible(kGpus, "GPU-aa22"), 1);
}

TEST(GpuCount, ListEndsAtTheFirstEntryThatNamesNoGpu) {
    EXPECT_EQ(count_visible(kGpus, ""), 0);
    EXPECT_EQ(count_visible(kGpus, "-1"), 0);
    EXPECT_EQ(count_visible(kGpus, "0,3,1"), 1);
    EXPECT_EQ(count_visible(kGpus, "0,,1"), 1);
    EXPECT_EQ(count_visible(kGpus, "1,NoDevFiles,2"), 1);
    EXPECT_EQ(count_visible(kGpus, "GPU-aa"), 0);  // Two GPUs begin so.
}

TEST(GpuCount, RepeatedEntryHidesEveryGpu) {
    EXPECT_EQ(count_visible(kGpus, "0,1,0"), 0);
    EXPECT_EQ(count_visible(kGpus, "0,GPU-aa11"), 0);
}

TEST(GpuCount, PartsOfGpusAreLeftToTheDriver) {
    EXPECT_EQ(count_visible(kGpus, "MIG-aa11/1/0"), std::nullopt);
}

TEST(GpuCount, ManagementLibraryCountsTheGpus) {
    EXPECT_EQ(count_without_driver(STAND_IN_MANAGEMENT, 13000, std::nullopt), 2);
    EXPECT_EQ(count_without_driver(STAND_IN_MANAGEMENT, 12040, "GPU-bbbb"), 1);
}

TEST(GpuCount, DriverIsAskedIfTheLibraryCannotTell) {
    EXPECT_EQ(count_without_driver("/nowhere/libnvidia-ml.so.1", 13000, std::nullopt),
              std::nullopt);
    EXPECT_EQ(count_without_driver("libc.so.6", 13000, std::nullopt), std::nullopt);
    EXPECT_EQ(count_without_driver(STAND_IN_MANAGEMENT, 14000, std::nullopt), std::nullopt);
}

}  // namespace
}  // namespace regroup::cuda
