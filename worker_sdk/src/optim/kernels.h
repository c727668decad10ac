// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "worker_sdk/src/optim/flat_tensors.h"
#include "worker_sdk/src/optim/squares.h"
#include "worker_sdk/src/optim/update_rules.h"

namespace regroup::optim {

/// The loops of the optimizers over the tensors of one kind of device. Those of a GPU put their
/// work into `stream` (a cudaStream_t) of the current GPU, one launch for hundreds of tensors of
/// the same dtypes, and return the cudaError_t as a number: 0, or the reason why they did nothing
/// or not all. Those of the CPU ignore the stream. All tensors and pointers are to the memory of
/// the device.
class Kernels {
   public:
    virtual ~Kernels() = default;

    [[nodiscard]] virtual int update_scale(ScalerState* state, const ScalerRule& rule,
                                           void* stream) const = 0;
    [[nodiscard]] virtual int report_overflow(ScalerState* state, void* stream) const = 0;
    /// Sets the state's overflow if any of the tensors holds an inf or a NaN.
    [[nodiscard]] virtual int check(std::span<const ConstTensorView> tensors, ScalerState* state,
                                    void* stream) const = 0;
    /// The same for tensors of float, and divides them by the scale.
    [[nodiscard]] virtual int unscale(std::span<const TensorView> tensors, ScalerState* state,
                                      void* stream) const = 0;
    /// Adds up the squares of each chunk of kSquaresChunk elements, in the order that squares.h
    /// tells. `sums` has one place for each chunk: those of the first tensor come first. For
    /// float32, float64, float16 and bfloat16.
    [[nodiscard]] virtual int sum_squares(std::span<const TensorView> tensors, double* sums,
                                          void* stream) const = 0;
    /// Multiplies all values, of the same dtypes, by `factor`.
    [[nodiscard]] virtual int scale(std::span<const TensorView> tensors, double factor,
                                    void* stream) const = 0;
    [[nodiscard]] virtual int set_learning_rate(StepState* step, double learning_rate,
                                                void* stream) const = 0;
    /// Begins a step, and does it for all elements unless it must be skipped, which a GPU alone
    /// knows. `scaler` may be null: gradients that are not scaled. SGD without momentum has no
    /// moments.
    [[nodiscard]] virtual int step(StepState* step, const ScalerState* scaler, bool divide,
                                   const AnyRule& rule, std::span<const FlatTensors> tensors,
                                   void* stream) const = 0;
    /// Rounds the masters into their shadows, where there are any.
    [[nodiscard]] virtual int write_shadows(std::span<const FlatTensors> tensors,
                                            void* stream) const = 0;
};

[[nodiscard]] const Kernels& cpu_kernels();
/// Throws Error `invalid_argument` in a build without CUDA.
[[nodiscard]] const Kernels& gpu_kernels();

}  // namespace regroup::optim
