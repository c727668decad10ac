// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/solo_process_group.h"

#include <cstring>

#include "worker_sdk/src/cpu/arguments.h"
#include "worker_sdk/src/work.h"

namespace regroup::cpu {

Work SoloProcessGroup::result(std::string_view operation) const {
    const std::lock_guard lock(mutex_);
    return abort_reason_
               ? failed_work(Errc::fenced, std::string(operation) + ": aborted: " + *abort_reason_)
               : Work();
}

Work SoloProcessGroup::all_reduce(TensorView buffer, Reduction /*reduction*/) {
    check_buffer("all_reduce", buffer);
    return result("all_reduce");
}

Work SoloProcessGroup::broadcast(TensorView buffer, std::uint32_t root) {
    check_buffer("broadcast", buffer);
    check_rank("broadcast: root", root, 1);
    return result("broadcast");
}

Work SoloProcessGroup::all_gather(ConstTensorView input, TensorView output) {
    check_all_gather(input, output, 1);
    Work work = result("all_gather");
    if (input.count > 0) {
        std::memmove(output.data, input.data, input.bytes());
    }
    return work;
}

Work SoloProcessGroup::barrier() {
    return result("barrier");
}

Work SoloProcessGroup::send(ConstTensorView buffer, std::uint32_t peer, std::uint32_t /*tag*/) {
    check_buffer("send", buffer);
    check_peer("send", peer, 0, 1);
    return result("send");
}

Work SoloProcessGroup::recv(TensorView buffer, std::uint32_t peer, std::uint32_t /*tag*/) {
    check_buffer("recv", buffer);
    check_peer("recv", peer, 0, 1);
    return result("recv");
}

void SoloProcessGroup::abort(std::string_view reason) noexcept {
    const std::lock_guard lock(mutex_);
    if (!abort_reason_) {
        abort_reason_ = reason;
    }
}

}  // namespace regroup::cpu
