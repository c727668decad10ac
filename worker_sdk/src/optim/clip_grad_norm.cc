// SPDX-License-Identifier: Apache-2.0
#include <regroup/clip_grad_norm.h>
#include <regroup/cuda.h>
#include <regroup/exact_sum.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>

#include "worker_sdk/src/optim/cpu_update.h"
#include "worker_sdk/src/optim/kernels.h"
#include "worker_sdk/src/optim/memory.h"
#include "worker_sdk/src/optim/tensor_checks.h"

namespace regroup {
namespace {

// Keeps a norm of zero from dividing by zero, as in PyTorch.
constexpr double kSmallest = 1e-6;

void check_clipping(bool holds, const std::string& problem) {
    optim::require(holds, problem, "gradient clipping");
}

void check(const std::vector<TensorView>& gradients, double max_norm) {
    check_clipping(max_norm >= 0.0, "max_norm must be at least 0, not " + std::to_string(max_norm));
    for (const TensorView& gradient : gradients) {
        check_clipping(gradient.dtype == DType::float32 || gradient.dtype == DType::float64 ||
                           gradient.dtype == DType::float16 || gradient.dtype == DType::bfloat16,
                       "gradients must be float32, float64, float16 or bfloat16, not " +
                           std::string(to_string(gradient.dtype)));
        check_clipping(gradient.count == 0 || gradient.data != nullptr, "a gradient has no data");
        check_clipping(gradient.device == gradients.front().device,
                       "the gradients must be on one device, but some are on " +
                           to_string(gradients.front().device) + " and others on " +
                           to_string(gradient.device));
    }
}

std::size_t chunk_count(const TensorView& gradient) {
    return (gradient.count + optim::kSquaresChunk - 1) / optim::kSquaresChunk;
}

/// The sums of all chunks, tensor by tensor.
std::vector<double> squares_of(const std::vector<TensorView>& gradients, Stream stream) {
    std::size_t chunks = 0;
    for (const TensorView& gradient : gradients) {
        chunks += chunk_count(gradient);
    }
    std::vector<double> sums(chunks);
    if (sums.empty()) {
        return sums;
    }
    const Device device = gradients.front().device;
    if (device.kind == DeviceKind::cpu) {
        std::span<double> left = sums;
        for (const TensorView& gradient : gradients) {
            optim::sum_squares_on_cpu(gradient, left.first(chunk_count(gradient)));
            left = left.subspan(chunk_count(gradient));
        }
        return sums;
    }
    const Buffer on_gpu = cuda::allocate(device, sums.size() * sizeof(double));
    optim::on_gpu(device, stream, "adding up squares", [&](void* handle) {
        return optim::launch_sum_squares(gradients, static_cast<double*>(on_gpu.data), handle);
    });
    cuda::copy(std::span(sums), ConstTensorView(on_gpu.data, sums.size(), DType::float64, device),
               stream);
    return sums;
}

void scale(const std::vector<TensorView>& gradients, double factor, Stream stream) {
    const Device device = gradients.front().device;
    if (device.kind == DeviceKind::cpu) {
        for (const TensorView& gradient : gradients) {
            optim::scale_on_cpu(gradient, factor);
        }
        return;
    }
    optim::on_gpu(device, stream, "clipping gradients",
                  [&](void* handle) { return optim::launch_scale(gradients, factor, handle); });
}

}  // namespace

double clip_grad_norm(const std::vector<TensorView>& gradients, double max_norm,
                      const ClipOptions& options) {
    check(gradients, max_norm);
    ExactSum total;
    for (const double sum : squares_of(gradients, options.stream)) {
        total.add(sum);
    }
    if (options.shards_of != nullptr) {
        sum_over_ranks(*options.shards_of, std::span(&total, 1));
    }
    const double norm = std::sqrt(total.value());
    check_clipping(
        std::isfinite(norm) || !options.error_if_nonfinite,
        "the norm of the gradients is " + std::to_string(norm) +
            "; find the step that overflows, or let the norm pass (error_if_nonfinite) and "
            "skip the step");
    const double factor = max_norm / (norm + kSmallest);
    if (std::isfinite(norm) && factor < 1.0 && !gradients.empty()) {
        scale(gradients, factor, options.stream);
    }
    return norm;
}

}  // namespace regroup
