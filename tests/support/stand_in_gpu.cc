// SPDX-License-Identifier: Apache-2.0
// A program that links this file trains on GPUs that are host memory. Work is done as soon as it is
// put into a stream.
#include <cstring>
#include <memory>
#include <string_view>

#include "rendezvous/base/ensure.h"
#include "tests/support/stand_in_nccl/host_runtime.h"
#include "worker_sdk/src/cuda/cuda_runtime.h"
#include "worker_sdk/src/ddp/convert.h"
#include "worker_sdk/src/ddp/gradient_device.h"
#include "worker_sdk/src/optim/kernels.h"

namespace regroup {
namespace {

class PromptRuntime : public testing::HostRuntime {
   public:
    void copy(void* to, const void* from, std::size_t bytes, void* /*stream*/) override {
        std::memmove(to, from, bytes);
    }
};

template <class View>
View on_host(View view) {
    view.device = {};
    return view;
}

}  // namespace

namespace cuda {

DeviceRuntime& cuda_runtime() {
    static PromptRuntime runtime;
    return runtime;
}

void require_cuda(int status, std::string_view /*operation*/) {
    ENSURE(status == 0);
}

}  // namespace cuda

namespace ddp {

std::unique_ptr<GradientDevice> make_cuda_gradient_device(const Device& /*device*/, Stream stream) {
    return make_gradient_device({}, stream);
}

void convert_values_on_gpu(ConstTensorView from, TensorView to, float factor, Stream stream) {
    convert_values(on_host(from), on_host(to), factor, stream);
}

}  // namespace ddp

namespace optim {

const Kernels& gpu_kernels() {
    return cpu_kernels();
}

}  // namespace optim
}  // namespace regroup
