// SPDX-License-Identifier: Apache-2.0
#include <regroup/error.h>

#include "tests/support/matchers.h"
#include "worker_sdk/src/cuda/device_choice.h"

namespace regroup::cuda {
namespace {

std::string refusal_of(const DeviceRequest& request) {
    try {
        (void)choose_device(request);
        return "";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::invalid_argument);
        return error.what();
    }
}

TEST(GpuChoice, EachLocalRankGetsItsOwnGpu) {
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
        EXPECT_EQ(choose_device({.local_rank = rank, .local_world_size = 4, .device_count = 8}),
                  static_cast<std::int32_t>(rank));
        EXPECT_EQ(choose_device({.local_rank = rank,
                                 .local_world_size = 4,
                                 .device_count = 4,
                                 .visible = "2,3,6,7"}),
                  static_cast<std::int32_t>(rank));
    }
}

TEST(GpuChoice, OnlyVisibleGpuIsUsed) {
    EXPECT_EQ(choose_device({.local_rank = 5,
                             .local_world_size = 8,
                             .device_count = 1,
                             .visible = "GPU-5d8f9a51-b5c8-4f6e-9a1b-0f4cde6c9d11"}),
              0);
}

TEST(GpuChoice, MoreProcessesThanGpusAreRefusedWithBothNumbers) {
    EXPECT_THAT(refusal_of({.local_rank = 0, .local_world_size = 4, .device_count = 2}),
                saying("4 processes of this node", "there are 2 GPUs",
                       "CUDA_VISIBLE_DEVICES is not set", "REGROUP_SHARE_GPUS=1"));
    EXPECT_THAT(
        refusal_of({.local_rank = 2, .local_world_size = 3, .device_count = 2, .visible = "0,1"}),
        HasSubstr("CUDA_VISIBLE_DEVICES=\"0,1\""));
    EXPECT_THAT(refusal_of({.local_rank = 1, .local_world_size = 2, .device_count = 1}),
                HasSubstr("there is 1 GPU "));
}

TEST(GpuChoice, RanksShareGpusRoundRobinOnRequest) {
    EXPECT_EQ(
        choose_device({.local_rank = 5, .local_world_size = 6, .device_count = 2, .share = true}),
        1);
}

TEST(GpuChoice, MissingGpuIsRefused) {
    EXPECT_THAT(refusal_of({}), HasSubstr("no GPU"));
}

}  // namespace
}  // namespace regroup::cuda
