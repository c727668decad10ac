// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/solo_process_group.h"

#include <utility>

#include "worker_sdk/src/base/copy.h"
#include "worker_sdk/src/base/learned_orders.h"
#include "worker_sdk/src/cpu/reduce.h"
#include "worker_sdk/src/group/request.h"
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

Work SoloProcessGroup::issue(const OperationRequest& request) {
    check(request, *this);  // Refuses every message: there is no peer.
    Signature signature = operation_of(request, 0, 1, {}).signature;
    {
        const std::lock_guard lock(mutex_);
        signature.number = ++number_;
        if (abort_reason_) {
            return failed_work(Errc::fenced, describe(signature) + ": " + *abort_reason_);
        }
    }
    const TensorView output = request.output;
    copy_bytes(output.data, request.input.data, request.input.bytes());
    if (request.reduction.factor != 1.0) {
        scale(output.dtype, output.data, output.data, output.count, request.reduction.factor);
    }
    return {};
}

std::unique_ptr<ProcessGroup> SoloProcessGroup::new_group(const std::vector<std::uint32_t>& ranks,
                                                          std::string_view name) {
    check_members(ranks, 1, name);
    barrier().wait();  // Refused if this group is aborted.
    auto group = std::make_unique<SoloProcessGroup>(descendants_);
    GroupOrders::attach(*group, GroupOrders::of(*this));
    return group;
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
