// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/training/replicas.h"

#include <regroup/error.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <map>
#include <string>
#include <utility>

namespace regroup::training {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{1} << 22U;  // read from a GPU at a time

[[noreturn]] void refuse(const std::string& detail) {
    throw Error(Errc::invalid_argument, "data parallel: " + detail);
}

void check_device(const std::string& what, const TensorView& tensor, const Device& device) {
    if (tensor.count > 0 && tensor.device != device) {
        refuse(what + " is on " + to_string(tensor.device) + ", but the group is on " +
               to_string(device));
    }
}

// FNV-1a over 64-bit words.
class Fingerprint {
   public:
    void mix(std::uint64_t word) { state_ = (state_ ^ word) * 0x100000001b3ULL; }
    void mix(const TensorView& view) {
        mix(view.count);
        mix(static_cast<std::uint64_t>(view.dtype));
    }
    [[nodiscard]] std::int64_t value() const { return static_cast<std::int64_t>(state_); }

   private:
    std::uint64_t state_ = 0xcbf29ce484222325ULL;
};

// What one rank registered, in a form that can be compared across ranks.
using Summary = std::array<std::int64_t, 4>;  // parameters, elements, all shapes, options

Summary summarise(std::span<const Parameter> parameters, std::span<const TensorView> buffers,
                  const DataParallelOptions& options) {
    Fingerprint shapes;
    std::size_t element_count = 0;
    for (const Parameter& parameter : parameters) {
        shapes.mix(parameter.value);
        shapes.mix(parameter.gradient);
        element_count += parameter.value.count;
    }
    shapes.mix(TensorView());  // sets the parameters apart from the buffers
    for (const TensorView& buffer : buffers) {
        shapes.mix(buffer);
    }
    Fingerprint chosen;
    chosen.mix(options.bucket_bytes);
    chosen.mix(options.first_bucket_bytes);
    chosen.mix(static_cast<std::uint64_t>(options.reduction));
    for (const bool flag : {options.rebuild_buckets, options.unused_parameters,
                            options.broadcast_buffers_each_step, options.hook != nullptr}) {
        chosen.mix(flag ? 1U : 0U);
    }
    return {static_cast<std::int64_t>(parameters.size()), static_cast<std::int64_t>(element_count),
            shapes.value(), chosen.value()};
}

std::string describe(const Summary& summary) {
    return std::to_string(summary[0]) + " parameters with " + std::to_string(summary[1]) +
           " elements";
}

/// Four independent chains of multiplications over 32 bytes at a time, folded at the end.
class Digest {
   public:
    void add(const std::byte* data, std::size_t bytes) {
        for (; bytes >= sizeof lanes_; data += sizeof lanes_, bytes -= sizeof lanes_) {
            add_block(data);
        }
        if (bytes > 0) {
            std::array<std::byte, sizeof lanes_> rest{};
            std::memcpy(rest.data(), data, bytes);
            add_block(rest.data());
        }
    }
    [[nodiscard]] std::uint64_t value(std::uint64_t byte_count) const {
        std::uint64_t folded = byte_count * kPrime;
        for (const std::uint64_t lane : lanes_) {
            folded = (std::rotl(folded, 27) ^ lane) * kPrime;
        }
        return folded ^ (folded >> 29U);
    }

   private:
    static constexpr std::uint64_t kPrime = 0x9e3779b97f4a7c15ULL;

    void add_block(const std::byte* data) {
        std::array<std::uint64_t, 4> words{};
        std::memcpy(words.data(), data, sizeof words);
        for (std::size_t i = 0; i < lanes_.size(); ++i) {
            lanes_[i] = std::rotl(lanes_[i] ^ words[i], 31) * kPrime;
        }
    }

    std::array<std::uint64_t, 4> lanes_{1, 2, 3, 4};
};

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

std::uint64_t digest_of(ConstTensorView tensor, GradientDevice& device) {
    Digest digest;
    const auto* data = static_cast<const std::byte*>(tensor.data);
    const std::size_t bytes = tensor.bytes();
    if (tensor.device.kind == DeviceKind::cpu) {
        digest.add(data, bytes);
        return digest.value(bytes);
    }
    std::vector<std::byte> block(std::min(bytes, kBlockBytes));
    for (std::size_t at = 0; at < bytes; at += block.size()) {
        const std::size_t count = std::min(block.size(), bytes - at);
        device.read(block.data(), data + at, count);
        digest.add(block.data(), count);
    }
    return digest.value(bytes);
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
    Fingerprint whole;
    for (const Parameter& parameter : parameters) {
        const std::uint64_t digest = digest_of(parameter.value, device);
        digests.push_back(static_cast<std::int64_t>(digest));
        whole.mix(digest);
    }
    // One word for each rank tells whether all is well; only if not, one for each parameter.
    const std::int64_t summary = whole.value();
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

}  // namespace regroup::training
