// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "agent/process/linux_launcher.h"

namespace regroup::agent {

/// Reaps the orphans that this process adopts as a subreaper, so that a long-running agent has no
/// defunct processes. Does not reap the launcher's children.
class OrphanReaper {
   public:
    /// `launcher` must outlive this object.
    OrphanReaper(boost::asio::io_context& io, const LinuxLauncher& launcher);
    ~OrphanReaper();
    OrphanReaper(const OrphanReaper&) = delete;
    OrphanReaper& operator=(const OrphanReaper&) = delete;

   private:
    struct State;
    static void wait(const std::shared_ptr<State>& state);

    std::shared_ptr<State> state_;
};

}  // namespace regroup::agent
