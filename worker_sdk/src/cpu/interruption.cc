// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/interruption.h"

#include <regroup/error.h>

namespace regroup::cpu {

Interruption::Interruption(Mesh& mesh, const std::shared_ptr<RoundScope>& scope)
    : registration_(scope, [this](const std::string& reason) {
          const std::lock_guard lock(mutex_);
          reason_ = reason;
          wakeup_.ring();
      }) {
    mesh.add(*this);
}

void Interruption::watch(net::PollSet& poll) {
    wakeup_.watch(poll);
}

void Interruption::progress() {
    static_cast<void>(wakeup_.drain());
    const std::lock_guard lock(mutex_);
    if (!reason_.empty()) {
        throw Error(Errc::fenced, "aborted: " + reason_);
    }
}

}  // namespace regroup::cpu
