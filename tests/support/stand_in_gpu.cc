// SPDX-License-Identifier: Apache-2.0
// A program that links this file trains on GPUs that are host memory. Work is done as soon as it is
// put into a stream.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string_view>

#include "rendezvous/base/ensure.h"
#include "tests/support/stand_in_nccl/host_runtime.h"
#include "worker_sdk/src/base/float_arrays.h"
#include "worker_sdk/src/cuda/cuda_runtime.h"
#include "worker_sdk/src/ddp/convert.h"
#include "worker_sdk/src/ddp/gradient_device.h"
#include "worker_sdk/src/optim/cpu_update.h"
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

int launch_update_scale(ScalerState* state, const ScalerRule& rule, void* /*stream*/) {
    update_scale(*state, rule);
    return 0;
}

int launch_report_overflow(ScalerState* state, void* /*stream*/) {
    state->overflow = 1.0F;
    return 0;
}

int launch_check(std::span<const ConstTensorView> tensors, ScalerState* state, void* stream) {
    const bool finite = std::ranges::all_of(tensors, [](const ConstTensorView& tensor) {
        return all_finite(tensor.dtype, tensor.data, tensor.count);
    });
    return finite ? 0 : launch_report_overflow(state, stream);
}

int launch_unscale(std::span<const TensorView> tensors, ScalerState* state, void* stream) {
    const std::vector<ConstTensorView> all(tensors.begin(), tensors.end());
    return launch_check(all, state, stream) + launch_scale(tensors, 1.0F / state->scale, stream);
}

int launch_sum_squares(std::span<const TensorView> tensors, double* sums, void* /*stream*/) {
    for (const TensorView& tensor : tensors) {
        const std::size_t chunks = (tensor.count + kSquaresChunk - 1) / kSquaresChunk;
        sum_squares_on_cpu(tensor, {sums, chunks});
        sums += chunks;
    }
    return 0;
}

int launch_scale(std::span<const TensorView> tensors, double factor, void* /*stream*/) {
    for (const TensorView& tensor : tensors) {
        scale_on_cpu(tensor, factor);
    }
    return 0;
}

int launch_set_learning_rate(StepState* step, double learning_rate, void* /*stream*/) {
    step->learning_rate = learning_rate;
    return 0;
}

int launch_step(StepState* step, const ScalerState* scaler, bool divide, const AnyRule& rule,
                std::span<const FlatTensors> tensors, void* /*stream*/) {
    step_on_cpu(*step, scaler, divide, rule, tensors);
    return 0;
}

int launch_write_shadows(std::span<const FlatTensors> tensors, void* /*stream*/) {
    for (const FlatTensors& each : tensors) {
        write_shadow_on_cpu(each);
    }
    return 0;
}

}  // namespace optim
}  // namespace regroup
