// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>
#include <regroup/tensor_view.h>

#include <cstdint>
#include <vector>

namespace regroup {

/// Mean and variance of each channel of a batch.
struct BatchStatistics {
    /// Elements of each channel: samples, times positions of an image. The same for all channels.
    std::uint64_t count = 0;
    std::vector<double> mean{};      ///< [channels]
    std::vector<double> variance{};  ///< [channels], biased: divided by `count`.
};

/// Sums over the elements of each channel, for a layer with input x and the gradient dy of its
/// output.
struct BatchGradientSums {
    std::vector<double> dy{};      ///< [channels]: the sum of dy.
    std::vector<double> dy_xmu{};  ///< [channels]: the sum of dy * (x - mean of all ranks).
};

/// Combines the statistics of the batches of all ranks into those of one batch of all their
/// samples: what SyncBatchNorm of PyTorch normalises with. Every rank makes the call in its forward
/// pass, for the same layers in the same order, and gets the same bits.
///
///     constexpr std::size_t kChannels = 8;
///     std::vector<double> x(32 * kChannels), y(x.size());  // [samples, channels]
///     std::vector<double> dy(x.size()), dx(x.size());      // Their gradients.
///     std::vector<float> running_mean(kChannels), running_variance(kChannels, 1);
///     regroup::BatchStatistics own;     // Of x on this rank.
///     regroup::BatchGradientSums sums;  // Of dy on this rank.
///
///     // The forward pass.
///     const regroup::BatchStatistics all = regroup::sync_batch_statistics(group, own);
///     regroup::update_running_statistics(all, 0.1, std::span(running_mean),
///                                        std::span(running_variance));
///     for (std::size_t i = 0; i < x.size(); ++i) {
///         const std::size_t c = i % kChannels;
///         y[i] = (x[i] - all.mean[c]) / std::sqrt(all.variance[c] + 1e-5);
///     }
///     // The backward pass.
///     sums = regroup::sync_batch_gradients(group, sums);
///     const auto n = static_cast<double>(all.count);
///     for (std::size_t i = 0; i < x.size(); ++i) {
///         const std::size_t c = i % kChannels;
///         const double variance = all.variance[c] + 1e-5;
///         const double away = (x[i] - all.mean[c]) / variance;
///         dx[i] = (dy[i] - sums.dy[c] / n - away * sums.dy_xmu[c] / n) / std::sqrt(variance);
///     }
///
/// A layer with a weight and a bias has y * weight + bias, and dx * weight. Their gradients are of
/// this rank alone, as for any parameter: dy_xmu / sqrt(variance) and dy, before the exchange.
/// DistributedDataParallel reduces them.
///
/// Numbers of elements may differ by rank. A rank without elements gives a count of 0; its mean and
/// variance have the same number of channels, and are not read. If no rank has elements, the result
/// has a count of 0 and zeroes.
///
/// Means and sums of squared differences are combined pairwise in rank order, in float64. Unlike a
/// sum of squares, this loses no digits if the mean is much larger than the deviation. Blocks.
/// Costs one all_gather of 8 * (2 * channels + 1) bytes from each rank. The values are in host
/// memory for a group on a GPU, too.
///
/// Throws Error `invalid_argument` if `mean` and `variance` of this rank differ in size, or, on
/// "cpu", those of two ranks; otherwise as the group.
[[nodiscard]] BatchStatistics sync_batch_statistics(ProcessGroup& group,
                                                    const BatchStatistics& mine);

/// Adds up the sums of all ranks, for the backward pass: see sync_batch_statistics. The same bits
/// on every rank. A rank without elements gives zeroes. Blocks. Costs one all_reduce of 16 *
/// channels bytes. The values are in host memory for a group on a GPU, too. Throws Error
/// `invalid_argument` if `dy` and `dy_xmu` differ in size; otherwise as the group.
[[nodiscard]] BatchGradientSums sync_batch_gradients(ProcessGroup& group,
                                                     const BatchGradientSums& mine);

/// Moves the running mean and variance, with which a trained network normalises, towards the
/// statistics of a batch, as torch.nn.BatchNorm does:
/// - running_mean = (1 - momentum) * running_mean + momentum * mean
/// - running_variance = (1 - momentum) * running_variance + momentum * unbiased variance, which is
///   variance * count / (count - 1)
///
/// Local, and the same bits on all ranks that have the same statistics and running values. A batch
/// of less than two elements changes nothing. In an ElasticLoop, register both with
/// `register_buffer`, since they change in the forward pass.
///
/// `running_mean`, `running_variance`: [channels], float32 or float64, in host memory or on a GPU.
/// Throws Error `invalid_argument` for another dtype or number of channels; `system` if CUDA
/// refuses.
void update_running_statistics(const BatchStatistics& batch, double momentum,
                               TensorView running_mean, TensorView running_variance);

}  // namespace regroup
