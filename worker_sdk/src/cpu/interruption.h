// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "worker_sdk/src/base/round_scope.h"
#include "worker_sdk/src/cpu/mesh.h"

namespace regroup::cpu {

/// Lets the interruption of a scope end a group, while it forms too: whoever is in a turn of the
/// mesh gets an Error `fenced`. An Error, because it ends the forming without a farewell to
/// neighbours who may be dead.
class Interruption final : public net::Participant {
   public:
    Interruption(Mesh& mesh, const std::shared_ptr<RoundScope>& scope);

    void watch(net::PollSet& poll) override;
    void progress() override;
    /// From now on nothing is heard of the scope any more.
    void leave() noexcept { registration_.leave(); }

   private:
    net::Pollable wakeup_;  // An eventfd.
    std::mutex mutex_;
    std::string reason_;  // guarded by mutex_
    RoundScope::Registration registration_;
};

}  // namespace regroup::cpu
