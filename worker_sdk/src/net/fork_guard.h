// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

namespace regroup::net {

/// Keeps a socket to this process: one that it forks gets /dev/null in its place. Otherwise a
/// child, such as a data loader's, would hold the connections of a rank that has died, and its
/// peers would not see them end. The child's copies of the objects stay valid; it has no part in
/// the group.
///
/// To be destroyed before the descriptor is closed.
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
