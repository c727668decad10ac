// SPDX-License-Identifier: Apache-2.0
#include <regroup/cuda.h>
#include <regroup/error.h>
#include <regroup/sync_batch_norm.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>

#include "worker_sdk/src/base/staged.h"

namespace regroup {
namespace {

void require(bool holds, const std::string& problem) {
    if (!holds) {
        throw Error(Errc::invalid_argument, "batch normalisation: " + problem);
    }
}

void require_channels(const char* name, std::size_t count, std::size_t channels) {
    require(count == channels, std::string(name) + " has " + std::to_string(count) +
                                   " channels, but there are " + std::to_string(channels));
}

/// One row in the exchange: the count, then the means, then the sums of squared differences from
/// the mean.
std::vector<double> row_of(const BatchStatistics& mine) {
    const auto count = static_cast<double>(mine.count);
    std::vector<double> row(1 + 2 * mine.mean.size());
    row.front() = count;
    if (mine.count > 0) {
        const auto squares = std::ranges::copy(mine.mean, row.begin() + 1).out;
        std::ranges::transform(mine.variance, squares,
                               [count](double variance) { return variance * count; });
    }
    return row;
}

/// Adds the elements of one row to `all`, whose variances are sums of squared differences. After
/// Chan, Golub and LeVeque.
void add(BatchStatistics& all, std::span<const double> row) {
    const double more = row.front();
    if (more == 0.0) {
        return;
    }
    const std::size_t channels = all.mean.size();
    const std::span means = row.subspan(1, channels);
    const std::span squares = row.subspan(1 + channels);
    const auto before = static_cast<double>(all.count);
    const double total = before + more;
    for (std::size_t c = 0; c < channels; ++c) {
        const double difference = means[c] - all.mean[c];
        all.mean[c] += difference * (more / total);
        all.variance[c] += squares[c] + difference * difference * (before * (more / total));
    }
    all.count += static_cast<std::uint64_t>(more);
}

template <class T>
void move_towards(TensorView running, std::span<const double> values, double factor,
                  double momentum) {
    std::vector<T> host(running.count);
    const TensorView view{std::span<T>(host)};
    cuda::copy(view, running);
    for (std::size_t c = 0; c < host.size(); ++c) {
        host[c] = static_cast<T>((1.0 - momentum) * static_cast<double>(host[c]) +
                                 momentum * (values[c] * factor));
    }
    cuda::copy(running, view);
}

void move_towards(TensorView running, std::span<const double> values, double factor,
                  double momentum) {
    if (running.dtype == DType::float64) {
        move_towards<double>(running, values, factor, momentum);
    } else {
        move_towards<float>(running, values, factor, momentum);
    }
}

}  // namespace

BatchStatistics sync_batch_statistics(ProcessGroup& group, const BatchStatistics& mine) {
    const std::size_t channels = mine.mean.size();
    require_channels("the variance", mine.variance.size(), channels);
    std::vector<double> row = row_of(mine);
    std::vector<double> rows(row.size() * group.world_size());
    const Staged given(group, std::span(row));
    Staged gathered(group, std::span(rows));
    group.all_gather(given.view(), gathered.view()).wait();
    gathered.read_back();

    BatchStatistics all{.count = 0,
                        .mean = std::vector<double>(channels),
                        .variance = std::vector<double>(channels)};
    for (std::size_t rank = 0; rank < group.world_size(); ++rank) {
        add(all, std::span(rows).subspan(rank * row.size(), row.size()));
    }
    for (double& variance : all.variance) {
        variance = all.count == 0 ? 0.0 : variance / static_cast<double>(all.count);
    }
    return all;
}

BatchGradientSums sync_batch_gradients(ProcessGroup& group, const BatchGradientSums& mine) {
    const std::size_t channels = mine.dy.size();
    require_channels("the sum of dy_xmu", mine.dy_xmu.size(), channels);
    std::vector<double> sums(mine.dy);
    sums.insert(sums.end(), mine.dy_xmu.begin(), mine.dy_xmu.end());
    Staged staged(group, std::span(sums));
    group.all_reduce(staged.view(), ReduceOp::sum).wait();
    staged.read_back();
    const auto middle = sums.begin() + static_cast<std::ptrdiff_t>(channels);
    return {.dy = {sums.begin(), middle}, .dy_xmu = {middle, sums.end()}};
}

void update_running_statistics(const BatchStatistics& batch, double momentum,
                               TensorView running_mean, TensorView running_variance) {
    const std::size_t channels = batch.mean.size();
    require_channels("the variance", batch.variance.size(), channels);
    require_channels("the running mean", running_mean.count, channels);
    require_channels("the running variance", running_variance.count, channels);
    for (const TensorView& running : {running_mean, running_variance}) {
        require(running.dtype == DType::float32 || running.dtype == DType::float64,
                "running values must be float32 or float64, not " +
                    std::string(to_string(running.dtype)));
    }
    if (batch.count < 2) {
        return;
    }
    const auto count = static_cast<double>(batch.count);
    move_towards(running_mean, batch.mean, 1.0, momentum);
    move_towards(running_variance, batch.variance, count / (count - 1.0), momentum);
}

}  // namespace regroup
