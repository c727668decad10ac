// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
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

/// Hides shared memory from forked children, which get zeroed memory of their own in its place.
/// Otherwise a child that unwinds the stack of a rank would write there what is not true of the
/// rank.
///
/// Must be destroyed before the memory is unmapped.
class MappingForkGuard {
   public:
    /// `address` is that of a whole mapping.
    MappingForkGuard(void* address, std::size_t bytes);
    ~MappingForkGuard();
    MappingForkGuard(const MappingForkGuard&) = delete;
    MappingForkGuard& operator=(const MappingForkGuard&) = delete;

   private:
    void* const address_;
};

}  // namespace regroup::net
