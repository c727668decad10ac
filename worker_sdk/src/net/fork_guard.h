// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

namespace regroup::net {

/// Hides a socket from forked children, which get /dev/null in its place. Otherwise a child, such
/// as a data loader, would hold the connections of a dead rank open, and its peers would not see
/// them end. The child's copies of the objects stay valid, but it has no part in the group.
///
/// Must be destroyed before the descriptor is closed.
class ForkGuard {
   public:
    explicit ForkGuard(int descriptor);
    ~ForkGuard();
    ForkGuard(ForkGuard&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
    ForkGuard& operator=(ForkGuard&& other) noexcept {
        std::swap(descriptor_, other.descriptor_);
        return *this;
    }

   private:
    int descriptor_;
};

}  // namespace regroup::net
