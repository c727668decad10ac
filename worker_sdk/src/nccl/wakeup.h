// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "rendezvous/store/descriptor.h"

namespace regroup::nccl {

/// Ends the poll() of another thread. Any thread; may outlive the one that polls.
class Wakeup {
   public:
    /// Throws Error `system`.
    Wakeup();

    void ring() noexcept;
    void drain() noexcept;
    [[nodiscard]] int fd() const noexcept { return fd_.get(); }

   private:
    store::Descriptor fd_;
};

}  // namespace regroup::nccl
