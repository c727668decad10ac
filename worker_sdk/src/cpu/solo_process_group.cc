// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/solo_process_group.h"

#include <cstring>
#include <utility>

#include "worker_sdk/src/cpu/reduce.h"
#include "worker_sdk/src/cpu/requests.h"
#include "worker_sdk/src/group/work.h"

namespace regroup::cpu {

SoloProcessGroup::SoloProcessGroup(std::shared_ptr<Descendants> siblings) {
    if (siblings) {
        subgroup_registration_.join(std::move(siblings), *this);
    }
}

SoloProcessGroup::~SoloProcessGroup() {
    subgroup_registration_.leave();
}

Work SoloProcessGroup::carry_out(const Operation& operation) {
    Signature signature = operation.signature;
    {
        const std::lock_guard lock(mutex_);
        signature.number = ++number_;
        if (abort_reason_) {
            return failed_work(Errc::fenced, describe(signature) + ": " + *abort_reason_);
        }
    }
    const TensorView output = operation.buffer;
    if (operation.input.count > 0 && operation.input.data != output.data) {
        std::memmove(output.data, operation.input.data, operation.input.bytes());
    }
    if (operation.factor != 1.0) {
        scale(output.dtype, output.data, output.data, output.count, operation.factor);
    }
    return {};
}

Work SoloProcessGroup::all_reduce(TensorView buffer, Reduction reduction) {
    return carry_out(request::all_reduce(buffer, reduction));
}

Work SoloProcessGroup::reduce(TensorView buffer, Reduction reduction, std::uint32_t root) {
    return carry_out(request::reduce(position_, buffer, reduction, root));
}

Work SoloProcessGroup::reduce_scatter(ConstTensorView input, TensorView output,
                                      Reduction reduction) {
    return carry_out(request::reduce_scatter(position_, input, output, reduction));
}

Work SoloProcessGroup::broadcast(TensorView buffer, std::uint32_t root) {
    return carry_out(request::broadcast(position_, buffer, root));
}

Work SoloProcessGroup::all_gather(ConstTensorView input, TensorView output) {
    return carry_out(request::all_gather(position_, input, output));
}

Work SoloProcessGroup::gather(ConstTensorView input, TensorView output, std::uint32_t root) {
    return carry_out(request::gather(position_, input, output, root));
}

Work SoloProcessGroup::scatter(ConstTensorView input, TensorView output, std::uint32_t root) {
    return carry_out(request::scatter(position_, input, output, root));
}

Work SoloProcessGroup::all_to_all(ConstTensorView input, TensorView output) {
    return carry_out(request::all_to_all(position_, input, output));
}

Work SoloProcessGroup::barrier() {
    return carry_out(request::barrier());
}

// There is no peer: these always throw.
Work SoloProcessGroup::send(ConstTensorView buffer, std::uint32_t peer, std::uint32_t tag) {
    return carry_out(request::send(position_, buffer, peer, tag));
}

Work SoloProcessGroup::recv(TensorView buffer, std::uint32_t peer, std::uint32_t tag) {
    return carry_out(request::recv(position_, buffer, peer, tag));
}

std::unique_ptr<ProcessGroup> SoloProcessGroup::new_group(const std::vector<std::uint32_t>& ranks,
                                                          std::string_view /*name*/) {
    request::check_members(ranks, 1);
    carry_out(request::barrier()).wait();  // Refused if this group is aborted.
    return std::make_unique<SoloProcessGroup>(descendants_);
}

void SoloProcessGroup::abort(std::string_view reason) noexcept {
    {
        const std::lock_guard lock(mutex_);
        if (abort_reason_) {
            return;
        }
        abort_reason_ = "aborted: " + std::string(reason);
    }
    descendants_->abort_all(reason);
}

}  // namespace regroup::cpu
