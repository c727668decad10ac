// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/ddp/replicas.h"

#include <regroup/error.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "worker_sdk/src/base/checksum.h"

namespace regroup::ddp {

void refuse(const std::string& detail) {
    throw Error(Errc::invalid_argument, "data parallel: " + detail);
}

namespace {

constexpr std::size_t kBlockBytes = std::size_t{1} << 22U;  // read from a GPU at a time

void check_device(const std::string& what, const TensorView& tensor, const Device& device) {
    if (tensor.count > 0 && tensor.device != device) {
        refuse(what + " is on " + to_string(tensor.device) + ", but the group is on " +
               to_string(device));
    }
}

// The registration of one rank, in a form that can be compared across ranks.
using Summary = std::array<std::int64_t, 4>;  // parameters, elements, all shapes, options

std::int64_t summary_of(std::span<const std::uint64_t> words) {
    return static_cast<std::int64_t>(checksum(words));
}

using Shapes = std::vector<std::uint64_t>;

void note_shape(Shapes& shapes, const TensorView& view) {
    shapes.insert(shapes.end(), {view.count, static_cast<std::uint64_t>(view.dtype)});
}

Shapes shapes_in(std::span<const Parameter> parameters) {
    Shapes shapes;
    for (const Parameter& parameter : parameters) {
        note_shape(shapes, parameter.value);
        note_shape(shapes, parameter.gradient);
    }
    return shapes;
}

Summary summarise(std::span<const Parameter> parameters, std::span<const TensorView> buffers,
                  const DataParallelOptions& options) {
    Shapes shapes = shapes_in(parameters);
    std::size_t element_count = 0;
    for (const Parameter& parameter : parameters) {
        element_count += parameter.value.count;
    }
    note_shape(shapes, TensorView());  // sets the parameters apart from the buffers
    for (const TensorView& buffer : buffers) {
        note_shape(shapes, buffer);
    }
    const std::array<std::uint64_t, 7> chosen{options.bucket_bytes,
                                              options.first_bucket_bytes,
                                              static_cast<std::uint64_t>(options.reduction),
                                              options.rebuild_buckets,
                                              options.unused_parameters,
                                              options.broadcast_buffers_each_step,
                                              options.hook != nullptr};
    return {static_cast<std::int64_t>(parameters.size()), static_cast<std::int64_t>(element_count),
            summary_of(shapes), summary_of(chosen)};
}

std::string describe(const Summary& summary) {
    return std::to_string(summary[0]) + " parameters with " + std::to_string(summary[1]) +
           " elements";
}

}  // namespace

void check_registration(const ProcessGroup& group, std::span<const Parameter> parameters,
                        std::span<const TensorView> buffers, const DataParallelOptions& options) {
    if (options.reduction != ReduceOp::avg && options.reduction != ReduceOp::sum) {
        refuse("the reduction must be avg or sum, not " +
               std::string(to_string(options.reduction)));
    }
    for (std::size_t index = 0; index < parameters.size(); ++index) {
        const auto& [value, gradient] = parameters[index];
        const std::string name = "parameter " + std::to_string(index);
        const bool fits = value.count == gradient.count &&
                          (value.dtype == gradient.dtype ||
                           (is_floating_point(value.dtype) && is_floating_point(gradient.dtype)));
        if (!fits) {
            refuse(name + " has " + std::to_string(value.count) + " " +
                   std::string(to_string(value.dtype)) + " values, but its gradient " +
                   std::to_string(gradient.count) + " of " +
                   std::string(to_string(gradient.dtype)));
        }
        if (value.count > 0 && value.data == nullptr) {
            refuse(name + " has no data");
        }
        check_device(name, value, group.device());
        if (gradient.data != nullptr) {
            check_device("the gradient of " + name, gradient, group.device());
        }
    }
    for (std::size_t index = 0; index < buffers.size(); ++index) {
        if (buffers[index].count > 0 && buffers[index].data == nullptr) {
            refuse("buffer " + std::to_string(index) + " has no data");
        }
        check_device("buffer " + std::to_string(index), buffers[index], group.device());
    }
}

void check_same_on_all_ranks(HostExchange& exchange, std::span<const Parameter> parameters,
                             std::span<const TensorView> buffers,
                             const DataParallelOptions& options) {
    const Summary mine = summarise(parameters, buffers, options);
    const std::vector<std::int64_t> all = exchange.gather(mine);
    Summary first{};
    std::copy_n(all.begin(), first.size(), first.begin());
    for (std::size_t at = first.size(); at < all.size(); at += first.size()) {
        Summary other{};
        std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(at), other.size(), other.begin());
        const std::string rank = std::to_string(at / first.size());
        if (!std::equal(other.begin(), other.end() - 1, first.begin())) {
            refuse("rank " + rank + " registered " + describe(other) + ", rank 0 " +
                   describe(first) +
                   ": every rank must register tensors of the same shapes and dtypes in the same "
                   "order");
        }
        if (other.back() != first.back()) {
            refuse("rank " + rank +
                   " chose other options than rank 0: bucket sizes, reduction and what else "
                   "DataParallelOptions holds must be the same on every rank");
        }
    }
}

std::uint64_t shapes_of(std::span<const Parameter> parameters) {
    return checksum(shapes_in(parameters));
}

std::uint64_t digest_of(ConstTensorView tensor, GradientDevice& device) {
    Checksum digest;
    const auto* data = static_cast<const std::byte*>(tensor.data);
    const std::size_t bytes = tensor.bytes();
    if (tensor.device.kind == DeviceKind::cpu) {
        digest.add(std::span(data, bytes));
        return digest.value();
    }
    std::vector<std::byte> block(std::min(bytes, kBlockBytes));
    for (std::size_t at = 0; at < bytes; at += block.size()) {
        const std::size_t count = std::min(block.size(), bytes - at);
        device.read(block.data(), data + at, count);
        digest.add(std::span(block).first(count));
    }
    return digest.value();
}

namespace {

/// The ranks whose digest of a parameter is not the most common one.
std::vector<std::uint32_t> outliers(std::span<const std::int64_t> by_rank) {
    std::map<std::int64_t, std::size_t> counts;
    for (const std::int64_t digest : by_rank) {
        ++counts[digest];
    }
    std::int64_t right = by_rank.front();
    for (const std::int64_t digest : by_rank) {
        if (counts[digest] > counts[right]) {
            right = digest;
        }
    }
    std::vector<std::uint32_t> ranks;
    for (std::uint32_t rank = 0; rank < by_rank.size(); ++rank) {
        if (by_rank[rank] != right) {
            ranks.push_back(rank);
        }
    }
    return ranks;
}

}  // namespace

std::optional<ReplicaDifference> find_replica_difference(HostExchange& exchange,
                                                         GradientDevice& device,
                                                         std::span<const Parameter> parameters) {
    std::vector<std::int64_t> digests;
    for (const Parameter& parameter : parameters) {
        const std::uint64_t digest = digest_of(parameter.value, device);
        digests.push_back(static_cast<std::int64_t>(digest));
    }
    // First compares one word per rank; only if they differ, one per parameter.
    const std::string_view bytes(reinterpret_cast<const char*>(digests.data()),
                                 digests.size() * sizeof digests[0]);
    const auto summary = static_cast<std::int64_t>(checksum(bytes));
    const std::vector<std::int64_t> summaries = exchange.gather(std::span(&summary, 1));
    if (std::ranges::all_of(summaries, [&](std::int64_t s) { return s == summaries.front(); })) {
        return std::nullopt;
    }
    const std::vector<std::int64_t> all = exchange.gather(digests);
    std::vector<std::int64_t> by_rank(summaries.size());
    for (std::size_t index = 0; index < digests.size(); ++index) {
        for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
            by_rank[rank] = all[rank * digests.size() + index];
        }
        std::vector<std::uint32_t> ranks = outliers(by_rank);
        if (!ranks.empty()) {
            return ReplicaDifference{.parameter = index, .ranks = std::move(ranks)};
        }
    }
    return std::nullopt;
}

}  // namespace regroup::ddp
