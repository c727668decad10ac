// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "worker_sdk/src/base/round_scope.h"
#include "worker_sdk/src/cpu/mesh.h"
#include "worker_sdk/src/net/wakeup.h"

namespace regroup::cpu {

/// Ends a group when its scope is interrupted, also while the group forms: a turn of the mesh
/// throws Error `fenced`. It throws Error, not GroupFailure, because Error ends the formation
/// without waiting for neighbours that may be dead.
class Interruption final : public net::Participant {
   public:
    Interruption(Mesh& mesh, const std::shared_ptr<RoundScope>& scope);

    void watch(net::PollSet& poll) override;
    void progress() override;
    /// Ignores later interruptions of the scope.
    void leave() noexcept { registration_.leave(); }

   private:
    net::Wakeup wakeup_;
    std::mutex mutex_;
    std::string reason_;  // guarded by mutex_
    RoundScope::Registration registration_;
};

}  // namespace regroup::cpu
