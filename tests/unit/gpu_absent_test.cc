// SPDX-License-Identifier: Apache-2.0
// This program is linked with the functions of a build without CUDA.
#include <regroup/cuda.h>
#include <regroup/distributed_data_parallel.h>
#include <regroup/error.h>
#include <regroup/fused_optimizer.h>
#include <regroup/grad_scaler.h>
#include <regroup/process_group.h>

#include <functional>
#include <span>
#include <vector>

#include "tests/support/fake_process_group.h"
#include "tests/support/matchers.h"

namespace regroup {
namespace {

TEST(GpuAbsent, EveryCallExplainsHowToGetGpuSupport) {
    const std::vector<std::function<void()>> calls = {
        [] { (void)ProcessGroup::create("nccl", Context()); },
        [] { (void)cuda::device_of(Context()); },
        [] { cuda::set_device({DeviceKind::cuda, 0}); },
        [] { (void)cuda::allocate({DeviceKind::cuda, 0}, 4); },
        [] {
            float value = 0.0F;
            cuda::copy(std::span(&value, 1), {&value, 1, DType::float32, {DeviceKind::cuda, 0}});
        },
        [] { const GradScaler scaler({}, {DeviceKind::cuda, 0}); },
        [] {
            float value = 0.0F;
            const TensorView there{&value, 1, DType::float32, {DeviceKind::cuda, 0}};
            const FusedOptimizer optimizer({{.master = there, .gradient = there}}, SgdOptions{});
        },
        [] {
            testing::FakeWorld world(1, {DeviceKind::cuda, 0});
            testing::FakeProcessGroup group(world, 0);
            const DistributedDataParallel ddp(group, {});
        },
    };
    for (const auto& call : calls) {
        try {
            call();
            ADD_FAILURE() << "no error";
        } catch (const Error& error) {
            EXPECT_EQ(error.code(), Errc::invalid_argument);
            EXPECT_THAT(error.what(), saying("this build of regroup has no \"nccl\" back end",
                                             "REGROUP_CUDA=ON", "use \"cpu\""));
        }
    }
    const cuda::Availability found = cuda::availability();
    EXPECT_FALSE(found.built_in);
    EXPECT_EQ(found.device_count, 0);
    EXPECT_EQ(found.nccl_version, 0);
    EXPECT_THAT(found.problem, HasSubstr("no \"nccl\" back end"));
}

}  // namespace
}  // namespace regroup
