// SPDX-License-Identifier: Apache-2.0
#include <regroup/clip_grad_norm.h>
#include <regroup/cuda.h>
#include <regroup/exact_sum.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>

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

/// The sums of all chunks, tensor by tensor.
std::vector<double> squares_of(const std::vector<TensorView>& gradients, Stream stream) {
    std::size_t chunks = 0;
    for (const TensorView& gradient : gradients) {
        chunks += (gradient.count + optim::kSquaresChunk - 1) / optim::kSquaresChunk;
    }
    std::vector<double> sums(chunks);
    if (sums.empty()) {
        return sums;
    }
    const Device device = gradients.front().device;
    const Buffer there = cuda::allocate(device, sums.size() * sizeof(double));
    optim::run_kernels(
        device, stream, "adding up squares", [&](const optim::Kernels& kernels, void* handle) {
            return kernels.sum_squares(gradients, static_cast<double*>(there.data), handle);
        });
    cuda::copy(std::span(sums), ConstTensorView(there.data, sums.size(), DType::float64, device),
               stream);
    return sums;
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
        optim::run_kernels(gradients.front().device, options.stream, "clipping gradients",
                           [&](const optim::Kernels& kernels, void* handle) {
                               return kernels.scale(gradients, factor, handle);
                           });
    }
    return norm;
}

}  // namespace regroup
