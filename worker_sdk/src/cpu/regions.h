// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "worker_sdk/src/cpu/shared_memory.h"

namespace regroup::cpu {

/// The memory of one call of `allocate`: an equal part of every rank, mapped by all ranks. The
/// region lives as long as this rank keeps its own part.
struct Region {
    std::uint32_t number = 0;           ///< Counts from 1, the same on all ranks.
    std::vector<SharedMemory> parts{};  ///< by rank
};

/// The regions of a group. Any thread.
class Regions {
   public:
    /// Where a buffer of this rank lies.
    struct Location {
        std::shared_ptr<const Region> region{};  ///< nullptr: in memory of its own.
        std::size_t offset = 0;
    };

    explicit Regions(std::uint32_t rank) : rank_(rank) {}

    void add(const std::shared_ptr<const Region>& region) {
        const std::lock_guard lock(mutex_);
        std::erase_if(regions_, [](const auto& entry) { return entry.expired(); });
        regions_.push_back(region);
    }
    [[nodiscard]] Location find(const void* data, std::size_t bytes) const {
        const std::lock_guard lock(mutex_);
        const auto begin = reinterpret_cast<std::uintptr_t>(data);
        for (const auto& entry : regions_) {
            auto region = entry.lock();
            if (!region) {
                continue;
            }
            const SharedMemory& own = region->parts[rank_];
            const std::uintptr_t offset = begin - reinterpret_cast<std::uintptr_t>(own.data());
            if (offset <= own.bytes() && bytes <= own.bytes() - offset) {
                return {std::move(region), offset};
            }
        }
        return {};
    }

   private:
    const std::uint32_t rank_;
    mutable std::mutex mutex_;
    std::vector<std::weak_ptr<const Region>> regions_;  // guarded by mutex_
};

}  // namespace regroup::cpu
