// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>
#include <regroup/tensor_view.h>

#include <vector>

namespace regroup {

struct ClipOptions {
    /// True: a norm that is infinite or NaN throws. False: it is returned and the gradients stay as
    /// they are, for instance because a GradScaler will skip the step.
    bool error_if_nonfinite = false;
    /// Set it if each rank has a shard of the gradients: the norm is that of the shards of all
    /// ranks together. Every rank of the group then makes the call, which blocks and costs one
    /// all-reduce of 568 bytes. Leave it out for the gradients of a DistributedDataParallel, which
    /// every rank has in full.
    ProcessGroup* shards_of = nullptr;
    /// On a GPU: the stream in which the gradients are computed and used.
    Stream stream = {};
};

/// Limits the length of a step, as torch.nn.utils.clip_grad_norm_ does: computes the Euclidean norm
/// of all gradients together, and if it exceeds `max_norm` multiplies all gradients by max_norm /
/// (norm + 1e-6). Returns the norm before that. An infinite `max_norm` only measures.
///
///     std::vector<float> weights(1000);
///     regroup::DistributedDataParallel ddp(group, {{std::span(weights)}});
///     regroup::FusedOptimizer optimizer({{.master = std::span(weights)}},
///                                       regroup::SgdOptions{.learning_rate = 0.1});
///     optimizer.set_gradients(ddp);
///     ddp.zero_gradients();
///     // Forward and backward pass into ddp.gradient(0).
///     ddp.reduce_gradients();
///     regroup::clip_grad_norm(ddp.gradients(), 1.0);  // Behind the reduction.
///     optimizer.step();
///
/// With a GradScaler, divide the float32 gradients first: `unscale` for each tensor, then clip,
/// then `step(scaler)`. Gradients of 16 bits must keep the scale: clip them to max_norm * scale().
///
/// Equal gradients give the same bits on all ranks, and on CPUs and GPUs: squares are added in
/// float64 in chunks of 4,096 elements, and the chunks exactly. So the result does not depend on
/// the order of the tensors. It does not depend on shards either if each one begins at a multiple
/// of 4,096 elements of its tensor.
///
/// `gradients`: float32, float64, float16 or bfloat16, on one device. A tensor of 16 bits is
/// rounded once more. On a GPU the call waits for the stream, since it returns the norm.
///
/// Throws Error `invalid_argument` for another dtype, for gradients on several devices, for a
/// `max_norm` below 0 or NaN, or for a norm that `error_if_nonfinite` forbids: on all ranks alike;
/// `system` if CUDA refuses; otherwise as the group.
double clip_grad_norm(const std::vector<TensorView>& gradients, double max_norm,
                      const ClipOptions& options = {});

}  // namespace regroup
