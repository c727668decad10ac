// SPDX-License-Identifier: Apache-2.0
// Buffers as a program without CUDA's headers handles them; nothing here needs a GPU.
#include <regroup/cuda.h>
#include <regroup/error.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tests/support/matchers.h"

namespace regroup {
namespace {

std::string refusal_of(TensorView to, ConstTensorView from) {
    try {
        cuda::copy(to, from);
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::invalid_argument);
        return error.what();
    }
    return "none";
}

TEST(GpuMemory, HostMemoryIsCopiedToHostMemoryAnywhere) {
    std::vector<std::int64_t> to(3);
    const std::vector<std::int64_t> from{1, -2, 1LL << 40};
    cuda::copy(std::span(to), std::span(from));
    EXPECT_THAT(to, ElementsAre(1, -2, 1LL << 40));

    std::vector<float> overlapping{1.0F, 2.0F, 3.0F, 4.0F};
    cuda::copy(std::span(overlapping).last(3), std::span(overlapping).first(3));
    EXPECT_THAT(overlapping, ElementsAre(1.0F, 1.0F, 2.0F, 3.0F));

    cuda::copy(TensorView(), ConstTensorView());
}

TEST(GpuMemory, CopyNamesTheMismatch) {
    std::vector<float> two(2);
    std::vector<float> three(3);
    std::vector<std::int32_t> integers(2);
    EXPECT_EQ(refusal_of(std::span(two), std::span(three)),
              "copy: 3 x float32 on cpu do not fit 2 x float32 on cpu");
    EXPECT_EQ(refusal_of(std::span(two), std::span(integers)),
              "copy: 2 x int32 on cpu do not fit 2 x float32 on cpu");
    EXPECT_EQ(refusal_of({nullptr, 2, DType::float32}, std::span(two)),
              "copy: 2 x float32 on cpu without data");
    EXPECT_EQ(refusal_of(std::span(two), {nullptr, 2, DType::float32}),
              "copy: 2 x float32 on cpu without data");
}

TEST(GpuMemory, HostMemoryIsAllocatedZeroed) {
    const Buffer buffer = cuda::allocate({}, 1000);
    EXPECT_EQ(buffer.bytes, 1000U);
    EXPECT_EQ(buffer.device, Device());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data) % 256, 0U);
    EXPECT_THAT(std::span(static_cast<const std::uint8_t*>(buffer.data), 1000), Each(0));
    EXPECT_EQ(cuda::allocate({}, 0).bytes, 0U);
}

}  // namespace
}  // namespace regroup
