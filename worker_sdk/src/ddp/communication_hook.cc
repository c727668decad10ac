// SPDX-License-Identifier: Apache-2.0
#include <regroup/communication_hook.h>
#include <regroup/error.h>

#include <cstdint>
#include <string>
#include <vector>

#include "worker_sdk/src/ddp/convert.h"

namespace regroup {
namespace {

class LowPrecisionHook final : public CommunicationHook {
   public:
    explicit LowPrecisionHook(DType wire) : wire_(wire) {}

    void prepare(ProcessGroup& group, std::span<const GradientBucket> buckets) override {
        std::size_t bytes = 0;
        for (const GradientBucket& bucket : buckets) {
            bytes += is_narrowed(bucket) ? wire_bytes(bucket) : 0;
        }
        if (memory_.bytes != bytes) {
            memory_ = group.allocate(bytes);
        }
        auto* at = static_cast<std::byte*>(memory_.data);
        packed_.clear();
        for (const GradientBucket& bucket : buckets) {
            packed_.emplace_back(at, bucket.gradients.count, wire_, memory_.device);
            at += is_narrowed(bucket) ? wire_bytes(bucket) : 0;
        }
    }

    Work start(ProcessGroup& group, const GradientBucket& bucket) override {
        if (!is_narrowed(bucket)) {
            return group.all_reduce(bucket.gradients, bucket.reduction);
        }
        const float factor = bucket.reduction == ReduceOp::avg
                                 ? 1.0F / static_cast<float>(group.world_size())
                                 : 1.0F;
        const TensorView& packed = packed_[bucket.index];
        ddp::convert_values(bucket.gradients, packed, factor, bucket.stream);
        return group.all_reduce(packed, ReduceOp::sum);
    }

    void finish(ProcessGroup& /*group*/, const GradientBucket& bucket) override {
        if (is_narrowed(bucket)) {
            ddp::convert_values(packed_[bucket.index], bucket.gradients, 1.0F, bucket.stream);
        }
    }

   private:
    static bool is_narrowed(const GradientBucket& bucket) {
        return bucket.gradients.dtype == DType::float32 || bucket.gradients.dtype == DType::float64;
    }
    // Buckets are padded to 64 bytes of at most 8 for each value, which leaves 16 on the wire.
    std::size_t wire_bytes(const GradientBucket& bucket) const {
        return bucket.gradients.count * item_bytes(wire_);
    }

    const DType wire_;
    Buffer memory_;
    std::vector<TensorView> packed_;  // by bucket
};

}  // namespace

void CommunicationHook::prepare(ProcessGroup& /*group*/,
                                std::span<const GradientBucket> /*buckets*/) {}

std::shared_ptr<CommunicationHook> low_precision_hook(DType wire) {
    if (wire != DType::float16 && wire != DType::bfloat16) {
        throw Error(Errc::invalid_argument,
                    "low_precision_hook: gradients can travel as float16 or bfloat16, not as " +
                        std::string(to_string(wire)));
    }
    return std::make_shared<LowPrecisionHook>(wire);
}

}  // namespace regroup
