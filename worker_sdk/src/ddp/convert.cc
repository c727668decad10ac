// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/ddp/convert.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "rendezvous/base/ensure.h"
#include "worker_sdk/src/base/float_arrays.h"

namespace regroup::ddp {
namespace {

// Values at a time, on their way through float: few enough to stay in the nearest cache.
constexpr std::size_t kBlockCount = 2048;

template <class Wide>
void narrow_blocks(const Wide* from, TensorView to, float factor) {
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): written first.
    std::array<float, kBlockCount> block;
    for (std::size_t at = 0; at < to.count; at += kBlockCount) {
        const std::size_t count = std::min(kBlockCount, to.count - at);
        for (std::size_t i = 0; i < count; ++i) {
            block[i] = static_cast<float>(from[at + i] * static_cast<Wide>(factor));
        }
        narrow(to.dtype, block.data(), to.part(at, count).data, count);
    }
}

template <class Wide>
void widen_blocks(ConstTensorView from, Wide* to, float factor) {
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): written first.
    std::array<float, kBlockCount> block;
    const std::size_t item = item_bytes(from.dtype);
    for (std::size_t at = 0; at < from.count; at += kBlockCount) {
        const std::size_t count = std::min(kBlockCount, from.count - at);
        widen(from.dtype, static_cast<const std::byte*>(from.data) + at * item, block.data(),
              count);
        for (std::size_t i = 0; i < count; ++i) {
            to[at + i] = static_cast<Wide>(block[i]) * static_cast<Wide>(factor);
        }
    }
}

}  // namespace

void convert_values(ConstTensorView from, TensorView to, float factor, Stream stream) {
    ENSURE(from.count == to.count && from.device == to.device);
    if (from.device.kind == DeviceKind::cuda) {
        convert_values_on_gpu(from, to, factor, stream);
    } else if (from.dtype == DType::float32) {
        narrow_blocks(static_cast<const float*>(from.data), to, factor);
    } else if (from.dtype == DType::float64) {
        narrow_blocks(static_cast<const double*>(from.data), to, factor);
    } else if (to.dtype == DType::float32) {
        widen_blocks(from, static_cast<float*>(to.data), factor);
    } else {
        ENSURE(to.dtype == DType::float64);
        widen_blocks(from, static_cast<double*>(to.data), factor);
    }
}

}  // namespace regroup::ddp
