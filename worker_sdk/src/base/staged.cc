// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/base/staged.h"

#include <regroup/cuda.h>

namespace regroup {

Staged::Staged(const ProcessGroup& group, TensorView host) : host_(host), view_(host) {
    if (group.device().kind == DeviceKind::cpu || host.count == 0) {
        return;
    }
    memory_ = cuda::allocate(group.device(), host.bytes());
    view_ = {memory_.data, host.count, host.dtype, group.device()};
    cuda::copy(view_, host_);
}

void Staged::read_back() {
    if (view_.data != host_.data) {
        cuda::copy(host_, view_);
    }
}

}  // namespace regroup
