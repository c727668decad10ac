// SPDX-License-Identifier: Apache-2.0
// Allocating and copying on GPUs that are host memory.
#include <regroup/error.h>

#include <span>
#include <thread>
#include <vector>

#include "tests/support/matchers.h"
#include "tests/support/stand_in_nccl/host_runtime.h"
#include "worker_sdk/src/cuda/device_memory.h"

namespace regroup {
namespace {

constexpr Device kGpu{DeviceKind::cuda, 1};

TensorView view_of(const Buffer& buffer) {
    return {buffer.data, buffer.bytes / sizeof(float), DType::float32, buffer.device};
}

TEST(GpuCopy, CopiedDataComesBackUnchanged) {
    testing::HostRuntime runtime(2);
    const Buffer buffer = cuda::allocate_on(runtime, kGpu, 3 * sizeof(float));
    EXPECT_EQ(buffer.device, kGpu);
    EXPECT_THAT(std::span(static_cast<const float*>(buffer.data), 3), Each(0.0F));

    const std::vector<float> there{1.0F, 2.0F, 3.0F};
    std::vector<float> back(3);
    cuda::copy_on(runtime, view_of(buffer), std::span(there), {});
    cuda::copy_on(runtime, std::span(back), view_of(buffer), {});
    EXPECT_EQ(back, there);
}

TEST(GpuCopy, CopyRestoresTheDeviceOfTheThread) {
    std::thread([] {
        testing::HostRuntime runtime(2);
        runtime.set_device(0);
        const Buffer buffer = cuda::allocate_on(runtime, kGpu, sizeof(float));
        EXPECT_EQ(runtime.current_device(), 0);
    }).join();
}

TEST(GpuCopy, CopyCreatesNoContextOnAnUnusedGpu) {
    std::thread([] {
        testing::HostRuntime runtime(2);
        EXPECT_EQ(runtime.current_device(), 0);  // as in a new thread of CUDA
        {
            const Buffer buffer = cuda::allocate_on(runtime, kGpu, sizeof(float));
        }
        EXPECT_TRUE(runtime.has_context(1));
        EXPECT_FALSE(runtime.has_context(0));
    }).join();
}

/// A GPU that is lost while another one is the current one.
class LostRuntime : public testing::HostRuntime {
   public:
    using HostRuntime::HostRuntime;
    void set_device(int device) override {
        if (device == lost) {
            throw Error(Errc::system, "cudaSetDevice: the device is lost");
        }
        HostRuntime::set_device(device);
    }
    int lost = -1;
};

TEST(GpuCopy, CopySurvivesTheLossOfThePreviousDevice) {
    std::thread([] {
        LostRuntime runtime(2);
        runtime.set_device(0);
        const cuda::DeviceScope scope(runtime, 1);
        runtime.lost = 0;
    }).join();
}

TEST(GpuCopy, CopyFollowsTheOrderOfItsStream) {
    testing::HostRuntime runtime(2);
    const Buffer first = cuda::allocate_on(runtime, kGpu, sizeof(float));
    const Buffer second = cuda::allocate_on(runtime, {DeviceKind::cuda, 0}, sizeof(float));
    const Stream stream{runtime.create_stream()};
    float value = 7.0F;
    cuda::copy_on(runtime, view_of(first), std::span(&value, 1), stream);
    value = 0.0F;
    // Between GPUs it is only put into the stream; back to the host it has been waited for.
    cuda::copy_on(runtime, view_of(second), view_of(first), stream);
    cuda::copy_on(runtime, std::span(&value, 1), view_of(second), stream);
    EXPECT_EQ(value, 7.0F);
    runtime.destroy_stream(stream.handle);
}

TEST(GpuCopy, MissingGpuIsNamed) {
    testing::HostRuntime runtime(2);
    float value = 0.0F;
    try {
        cuda::copy_on(runtime, std::span(&value, 1),
                      {&value, 1, DType::float32, {DeviceKind::cuda, 2}}, {});
        ADD_FAILURE() << "no error";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::invalid_argument);
        EXPECT_STREQ(error.what(), "copy: there is no cuda:2; GPUs that this process can use: 2");
    }
}

}  // namespace
}  // namespace regroup
