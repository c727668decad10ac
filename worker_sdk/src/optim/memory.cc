// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/optim/memory.h"

#include <regroup/cuda.h>

#include "rendezvous/base/ensure.h"

namespace regroup::optim {
namespace {

TensorView bytes_of(void* data, std::size_t count_bytes, const Device& device) {
    return {data, count_bytes, DType::uint8, device};
}

}  // namespace

Memory::Memory(const Device& device, std::size_t bytes) : buffer_(cuda::allocate(device, bytes)) {}

void Memory::read(void* host, std::size_t offset, std::size_t count_bytes, Stream stream) const {
    ENSURE(offset <= bytes() && count_bytes <= bytes() - offset);
    cuda::copy(bytes_of(host, count_bytes, {}),
               bytes_of(static_cast<std::byte*>(data()) + offset, count_bytes, buffer_.device),
               stream);
}

void Memory::write(const void* host, std::size_t offset, std::size_t count_bytes, Stream stream) {
    ENSURE(offset <= bytes() && count_bytes <= bytes() - offset);
    cuda::copy(bytes_of(static_cast<std::byte*>(data()) + offset, count_bytes, buffer_.device),
               ConstTensorView(host, count_bytes, DType::uint8), stream);
}

}  // namespace regroup::optim
